// postbox.wait_published: waiting until an event is published.
//
// Rule: prepare the sleep, then look, then sleep, as wait_for_version does it. It looks, each time
// with a new snapshot, at the event and at what the publications have stored of it, as the owner of
// the outbox (postbox.event_state), and sleeps on SharedState::published, which workers broadcast
// after they have stored results or a position.
//
// The races:
//  - The worker commits after the look and before the sleep: the sleep was prepared before the
//    look, so the broadcast sets the latch.
//  - The worker is killed between its commit and the broadcast, or an event is discarded by a
//    session, which broadcasts nothing: the longest sleep is a second.
//  - A log: a position is stored at most every postbox.checkpoint_interval. Parked events are
//    stored in the transaction of the position that passes them, or before it; one statement reads
//    both.
//
// On a standby, where no worker commits, it looks every 50 ms; without the shared memory of a
// preloaded library every 20 ms.
#include "extension/base/arguments.h"
#include "extension/base/guard.h"
#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/base/statement.h"
#include "extension/lifecycle/wakeup.h"
#include "extension/trust/act_as.h"
#include "extension/trust/may_see.h"

extern "C" {
#include <access/xact.h>
}

namespace postbox {
namespace {

constexpr long kLongestSleepMs = 1000;

struct Awaiting {
  Datum event_id;
  std::string id;  // for messages
  std::optional<Oid> outbox;
  std::optional<std::string> publication;
  TimestampTz deadline;
};

struct EventState {
  bool found = false;
  std::string state, publication, detail;
};

std::vector<Oid> OutboxesOf(const Awaiting& wanted) {
  Parameters parameters;
  if (wanted.outbox) {
    parameters.AddOid(REGCLASSOID, *wanted.outbox);
  } else {
    parameters.AddNull(REGCLASSOID);
  }
  parameters.AddTextOrNull(wanted.publication);
  const uint64 rows =
      Run("SELECT o.relation::oid FROM postbox.outbox o JOIN pg_class c ON c.oid = o.relation "
          "WHERE ($1 IS NULL OR o.relation = $1) AND ($2 IS NULL OR EXISTS (SELECT FROM "
          "postbox.publication p WHERE p.name = $2 AND p.outbox = o.relation)) ORDER BY 1",
          parameters);
  std::vector<Oid> outboxes;
  for (uint64 row = 0; row < rows; ++row) outboxes.push_back(OidColumn(row, 1));
  return outboxes;
}

EventState LookAt(Oid outbox, const Awaiting& wanted) {
  static Statement& look = *new Statement(
      "SELECT s.state, s.publication, s.detail, s.writer::text::bigint FROM "
      "postbox.event_state($1, $2, $3) s WHERE s.state IS NOT NULL",
      {REGCLASSOID, UUIDOID, TEXTOID});
  const Oid owner = RelationOwner(outbox);
  const ActAs act_as(owner, TrustIn(owner));
  const Datum values[] = {ObjectIdGetDatum(outbox), wanted.event_id,
                          wanted.publication ? TextValue(*wanted.publication) : Datum{0}};
  EventState event;
  event.found = look.Run(values, wanted.publication ? "   " : "  n") > 0;
  if (!event.found) return event;
  event.state = TextColumn(0, 1);
  event.publication = TextColumn(0, 2);
  event.detail = TextColumn(0, 3);
  const auto writer = static_cast<TransactionId>(Int64Column(0, 4));
  if (Pg([&] { return TransactionIdIsCurrentTransactionId(writer); })) event.state = "own";
  return event;
}

// The outbox that has the event.
Oid FindEvent(const Awaiting& wanted) {
  const std::vector<Oid> outboxes = OutboxesOf(wanted);
  if (outboxes.empty() && wanted.publication) {
    Throw(ERRCODE_UNDEFINED_OBJECT,
          "publication \"" + *wanted.publication + "\" does not exist" +
              (wanted.outbox ? " or does not read that outbox" : ""),
          "", "The publications of this database are listed in postbox.publication.");
  }
  if (outboxes.empty() && wanted.outbox) {
    Throw(ERRCODE_WRONG_OBJECT_TYPE, "\"" + RelationName(*wanted.outbox) + "\" is not an outbox",
          "", "The outboxes of this database are listed in postbox.outbox.");
  }
  bool hidden = false;
  for (const Oid outbox : outboxes) {
    if (!MaySee({outbox})) {
      hidden = true;
    } else if (LookAt(outbox, wanted).found) {
      return outbox;
    }
  }
  if (hidden && outboxes.size() == 1) {
    Throw(ERRCODE_INSUFFICIENT_PRIVILEGE,
          "permission denied for outbox " + RelationName(outboxes.front()), "",
          "wait_published needs SELECT on the outbox.");
  }
  Throw(ERRCODE_UNDEFINED_OBJECT, "event " + wanted.id + " does not exist",
        hidden ? "Outboxes without the right to read them were left out." : "",
        "Call it after the transaction that emits the event has committed.");
}

bool IsPublished(Oid outbox, const Awaiting& wanted) {
  const EventState event = LookAt(outbox, wanted);
  if (!event.found) {
    Throw(ERRCODE_UNDEFINED_OBJECT, "event " + wanted.id + " does not exist any more",
          "Its outbox keeps events for its retention.");
  }
  if (event.state == "published") return true;
  if (event.state == "waiting") return false;
  if (event.state == "own") {
    Throw(ERRCODE_INVALID_TRANSACTION_STATE,
          "event " + wanted.id + " was emitted or changed by the current transaction",
          "It is published after COMMIT.", "Call wait_published in a later transaction.");
  }
  // States in which waiting does not help.
  if (event.state == "parked") {
    Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
          "event " + wanted.id + " is parked in publication \"" + event.publication + "\"",
          event.detail, "See postbox.paused_keys. postbox.redrive tries it again.");
  }
  if (event.state == "discarded" || event.state == "expired") {
    Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
          "event " + wanted.id + (event.state == "expired" ? " has expired" : " was discarded"),
          "It will not be published.");
  }
  Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, "no publication takes event " + wanted.id,
        event.detail,
        "Create a publication with postbox.create_publication, or alter its aggregate_types.");
}

bool WaitUntilPublished(const Awaiting& wanted) {
  if (IsolationUsesXactSnapshot()) {
    Throw(ERRCODE_INVALID_TRANSACTION_STATE, "wait_published needs isolation level READ COMMITTED",
          "This transaction will not see what is committed after its first statement.",
          "Call it in a separate transaction.");
  }
  const SpiConnection connection;
  const FixedSearchPath search_path;
  const Oid outbox = FindEvent(wanted);
  return WaitUntil(Awaited::Published(), wanted.deadline, kLongestSleepMs,
                   [&] { return IsPublished(outbox, wanted); });
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(wait_published) {
  using namespace postbox;
  return Guarded([&] {
    Awaiting wanted;
    wanted.event_id = Argument(fcinfo, 0, "event_id");
    wanted.id = Pg([&]() -> const char* {
      return DatumGetCString(DirectFunctionCall1(uuid_out, wanted.event_id));
    });
    wanted.deadline = DeadlineAfter(Argument(fcinfo, 1, "timeout"));
    if (HasArgument(fcinfo, 2)) wanted.outbox = DatumGetObjectId(fcinfo->args[2].value);
    wanted.publication = OptionalText(fcinfo, 3);
    return BoolGetDatum(WaitUntilPublished(wanted));
  });
}
