// What the console reads: pages of lists, and single things. All of it with the rights of the role
// that has logged in, in a read-only transaction, bounded in rows and in time.
//
// A page is {"rows": [...], "next": {...}}. `next` has the parameters of the next page, and is null
// after the last one. Numbers that may be larger than 2^53 are texts, because browsers read
// numbers as doubles.
#ifndef POSTBOX_WORKER_CLI_CONSOLE_READS_H_
#define POSTBOX_WORKER_CLI_CONSOLE_READS_H_

#include <string>

#include "worker/cli/console/call.h"

namespace postbox::cli {

// The attributes of a row as an object of texts. A number or a list in them may be one that no
// reader of JSON on the way to the user keeps as it is, or reads at all.
#define POSTBOX_ATTRIBUTES(row)                                \
  "CASE jsonb_typeof(" row                                     \
  ".attributes) WHEN 'object' THEN (SELECT "                   \
  "jsonb_object_agg(a.key, a.value) FROM jsonb_each_text(" row \
  ".attributes) a) "                                           \
  "END"

// The lists that are paged by name: publications, outboxes, subscriptions, pullers, projections,
// handlers, inboxes, workers, backfills, rebuilds, republishes, audits. Null if there is no such
// list. `may_act` says whether the role may act on what a row is about: the same functions of the
// database decide about that when it does.
const char* ListQuery(const std::string& name);
Answer ReadList(Session* session, const char* query, const Arguments& arguments);

Answer ReadOverview(Session* session, const Arguments& arguments);
Answer ReadFindings(Session* session, const Arguments& arguments);
// Those of inboxes by inbox and key, those of outboxes likewise.
Answer ReadParkedKeys(Session* session, const Arguments& arguments);
// Newest first. A page looks at no more than kMostScanned dead letters, so it may have fewer rows
// than were asked for, or none, and a next page nevertheless.
inline constexpr int kMostScanned = 20000;
Answer ReadDeadLetters(Session* session, const Arguments& arguments);
// How many match the filter, up to kMostCounted.
inline constexpr int kMostCounted = 10000;
Answer CountDeadLetters(Session* session, const Arguments& arguments);
// One, with its payload.
Answer ReadDeadLetter(Session* session, const Arguments& arguments);
// What was done through consoles, newest first.
Answer ReadActions(Session* session, const Arguments& arguments);

// The payload that `row` has as the members payload_hex, bytes: in its place members encoding
// (json, text or base64), payload, and truncated.
void DecodePayload(JsonValue* row);
// How much of a payload is shown.
inline constexpr int kMostPayload = 262144;

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_CONSOLE_READS_H_
