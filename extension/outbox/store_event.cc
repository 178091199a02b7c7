#include "extension/outbox/store_event.h"

#include "extension/base/act_as.h"
#include "extension/base/message_bytes.h"
#include "extension/base/uuid.h"
#include "extension/outbox/given_version.h"
#include "extension/outbox/log_relations.h"
#include "extension/outbox/replicated.h"
#include "extension/outbox/version_counter.h"
#include "extension/server/shortage.h"
#include "extension/server/wakeup.h"

extern "C" {
#include <commands/sequence.h>
#include <storage/lmgr.h>
}

namespace postbox {
namespace {

Aggregate AggregateOf(const EmittedEvent& event) {
  return {event.aggregate_type.datum, event.aggregate_id.datum};
}

// Takes the version of the event, which locks the aggregate: the next transaction that emits for it
// waits for this one. Returns 0 if the seq is going to be the version.
int64 VersionOf(Outbox* outbox, const EmittedEvent& event) {
  const Aggregate aggregate = AggregateOf(event);
  if (outbox->facts().columns.VersionIsSeq()) {
    if (event.version.has_value()) {
      Throw(ERRCODE_FEATURE_NOT_SUPPORTED,
            "outbox \"" + outbox->facts().name + "\" has no column for versions",
            "The version of its events is their seq.", "Leave version out.");
    }
    LockAggregate(outbox, aggregate);
    return 0;
  }
  if (!event.version.has_value()) return CountVersion(outbox, aggregate);
  TakeVersion(outbox, aggregate, *event.version);
  return *event.version;
}

std::optional<Receipt> FindEvent(Outbox* outbox, const EmittedEvent& event) {
  pg_uuid_t id = *event.id;
  Datum value = UUIDPGetDatum(&id);
  if (outbox->Run(OutboxStatement::kFindEvent, &value) == 0) return std::nullopt;
  return Receipt{id, Int64Column(0, 1)};
}

std::string StoredMessage(const OutboxFacts& facts, const EmittedEvent& event) {
  return "event " + UuidText(*event.id) + " is in outbox \"" + facts.name + "\" already";
}
constexpr char kStoredHint[] =
    "Leave event_id out to get a new id. To emit an event once whatever is repeated, give "
    "source_event_id.";

// Whether an id that the caller has given has to be looked up in all generations of the log.
bool MustLookUp(const OutboxFacts& facts, const EmittedEvent& event) {
  return event.id_is_given && facts.is_log && facts.primary_key.empty();
}

// Whether the row is stored.
bool StoreRow(Outbox* outbox, const EmittedEvent& event, int64 seq, int64 version,
              OpenTables* tables) {
  pg_uuid_t id = *event.id;
  const int64 span = outbox->facts().generation_span;
  LogRow row{.seq = Int64GetDatum(seq),
             .id = UUIDPGetDatum(&id),
             .aggregate_type = event.aggregate_type.datum,
             .aggregate_id = event.aggregate_id.datum,
             .event_type = event.event_type.datum,
             .version = Int64GetDatum(version),
             .schema_version = event.schema_version.datum,
             .payload = event.payload,
             .attributes = AttributesDatum(event.extra),
             .occurred_at = TimestampTzGetDatum(event.occurred_at)};
  if (span > 0) {
    row.txid =
        UInt64GetDatum(U64FromFullTransactionId(Pg([] { return GetTopFullTransactionId(); })));
    row.generation = Int16GetDatum(GenerationOf(GetCurrentTransactionStartTimestamp(), span));
    row.origin = Int32GetDatum(ClusterOrigin());
    if (outbox->InsertIntoLog(row, tables)) return true;
  }
  std::array<Datum, 13> values = {
      row.id,         row.seq,         row.aggregate_type, row.aggregate_id,
      row.event_type, row.version,     row.schema_version, row.payload,
      row.attributes, row.occurred_at, row.txid,           row.generation,
      row.origin};
  return outbox->Insert(values.data()) != 0;
}

// Throws if the payload's column is jsonb, which lacks what some escapes stand for: "\\u0000", half
// of a surrogate pair, and what the encoding of the database has not. The INSERT would say so
// without naming the column.
void CheckFitsJsonb(const OutboxFacts& facts, const EmittedEvent& event) {
  const OutboxColumn& column = facts.columns.payload;
  if (column.type != "jsonb" || event.data.find("\\u") == std::string_view::npos) return;
  const char* json = Pg([&]() -> const char* {
    char* copy = pnstrdup(event.data.data(), event.data.size());
    return pg_any_to_server(copy, static_cast<int>(event.data.size()), PG_UTF8);
  });
  Pg([&] { CheckJson(CStringGetTextDatum(json)); });
  try {
    Pg([&] { DirectFunctionCall1(jsonb_in, CStringGetDatum(json)); });
  } catch (PostgresError& error) {
    if (error.sqlstate == ERRCODE_UNTRANSLATABLE_CHARACTER ||
        error.sqlstate == ERRCODE_INVALID_TEXT_REPRESENTATION) {
      error.sqlstate = ERRCODE_UNTRANSLATABLE_CHARACTER;
      error.message = "the payload has a character that jsonb cannot hold";
      error.detail =
          "Column " + column.name + " of outbox \"" + facts.name + "\" is jsonb. " + error.detail;
      error.hint = "Leave it out, or give the column the type json: ALTER TABLE " + facts.name +
                   " ALTER COLUMN " + column.name + " TYPE json.";
    }
    throw;
  }
}

void Insert(Outbox* outbox, const EmittedEvent& event, int64 seq, int64 version,
            OpenTables* tables) {
  const OutboxFacts& facts = outbox->facts();
  CheckFitsJsonb(facts, event);
  const EmittedHere emitted_here;
  try {
    if (StoreRow(outbox, event, seq, version, tables)) return;
  } catch (PostgresError& error) {
    // The partitions of a log have primary keys of their own names.
    if (error.sqlstate == ERRCODE_UNIQUE_VIOLATION &&
        (facts.is_log ? error.constraint_name.ends_with("_pkey")
                      : error.constraint_name == facts.primary_key)) {
      error.message = StoredMessage(facts, event);
      error.hint = kStoredHint;
    }
    throw;
  }
  Throw(ERRCODE_TRIGGERED_ACTION_EXCEPTION,
        "a trigger of outbox \"" + facts.name + "\" took the event away",
        "An event that outbox_emit has accepted must not be lost.",
        "Let the trigger return the row.");
}

// Whether the caller may emit. The INSERT itself checks again, by column and by row.
void CheckInsertPrivilege(const OutboxFacts& facts) {
  Pg([&] {
    if (pg_class_aclcheck(facts.relation, GetUserId(), ACL_INSERT) == ACLCHECK_OK) return;
    if (pg_attribute_aclcheck_all(facts.relation, GetUserId(), ACL_INSERT, ACLMASK_ANY) ==
        ACLCHECK_OK)
      return;
    aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_TABLE, get_rel_name(facts.relation));
  });
}

// Whether the version of the event has nothing to do with the version counter: it is given to an
// event of a log, of a type that is not counted.
bool IsFreeVersion(const Outbox& outbox, const EmittedEvent& event) {
  return outbox.facts().is_log && event.version.has_value() && !event.source_event_id.has_value() &&
         !MustRaiseCounter(outbox, event.aggregate_type.datum, *event.version);
}

// What has to be done as the owner of the outbox before the event is stored. Sets its version (see
// VersionOf) unless that is free, or returns the event that is already stored.
std::optional<Receipt> Prepare(Outbox* outbox, const EmittedEvent& event, bool is_free,
                               OpenTables* tables, int64* version) {
  if (!event.source_event_id.has_value() && !outbox->facts().columns.VersionIsSeq() &&
      !MustLookUp(outbox->facts(), event)) {
    const Aggregate aggregate = AggregateOf(event);
    if (!event.version.has_value()) {
      *version = CountVersionWithoutSql(*outbox, aggregate,
                                        tables == nullptr ? nullptr : tables->counter(),
                                        event.is_likely_first);
      if (*version != 0) return std::nullopt;
    } else if (outbox->facts().is_log &&
               TakeVersionWithoutSql(*outbox, aggregate, *event.version)) {
      return std::nullopt;
    }
  }
  SpiConnection connection;
  FixedSearchPath search_path;
  ActAs owner(outbox->facts().owner);
  if (event.source_event_id.has_value()) {
    if (const auto stored = FindEvent(outbox, event)) return stored;
    LockAggregate(outbox, AggregateOf(event));
    if (const auto stored = FindEvent(outbox, event)) return stored;
  }
  if (MustLookUp(outbox->facts(), event) && FindEvent(outbox, event)) {
    Throw(ERRCODE_UNIQUE_VIOLATION, StoredMessage(outbox->facts(), event), "", kStoredHint);
  }
  if (is_free) return std::nullopt;
  *version = VersionOf(outbox, event);
  return std::nullopt;
}

}  // namespace

std::shared_ptr<Outbox> OpenOutbox(Oid relation) {
  if (!OidIsValid(relation)) relation = DefaultOutbox();
  if (!OidIsValid(relation)) relation = OnlyOutbox();
  CheckInsertPrivilege(FindOutbox(relation)->facts());
  Pg([&] { LockRelationOid(relation, RowExclusiveLock); });
  return FindOutbox(relation);
}

void OpenTablesOf(Outbox* outbox, OpenTables* tables) {
  const int64 span = outbox->facts().generation_span;
  if (span > 0) outbox->Open(GenerationOf(GetCurrentTransactionStartTimestamp(), span), tables);
}

Receipt StoreEvent(Outbox* outbox, const EmittedEvent& event, OpenTables* tables) {
  const OutboxFacts& facts = outbox->facts();

  int64 version = event.version.value_or(0);
  // A caller that gives versions to events of a log has locked its aggregate: one INSERT is all.
  const bool is_free = IsFreeVersion(*outbox, event);
  if (!is_free || MustLookUp(facts, event)) {
    if (const auto stored = Prepare(outbox, event, is_free, tables, &version)) return *stored;
  }
  if (version != 0) CheckMessage(event, version);
  const int64 seq = Pg([&] {
    // Workers rely on it: the transaction has its id before it takes a sequence number of a log.
    if (facts.is_log) GetTopTransactionId();
    return nextval_internal(facts.sequence, false);
  });
  if (version == 0) {
    version = seq;
    CheckMessage(event, version);
  }
  Insert(outbox, event, seq, version, tables);
  WarnIfUnserved(facts.relation);
  RequestPublishersAtCommit();
  return Receipt{*event.id, version};
}

}  // namespace postbox
