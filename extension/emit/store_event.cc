#include "extension/emit/store_event.h"

#include "extension/base/message_bytes.h"
#include "extension/base/uuid.h"
#include "extension/emit/given_version.h"
#include "extension/emit/replicated.h"
#include "extension/emit/stamp.h"
#include "extension/emit/version_counter.h"
#include "extension/lifecycle/commit_counts.h"
#include "extension/lifecycle/shortage.h"
#include "extension/lifecycle/wakeup.h"
#include "extension/registry/log_relations.h"
#include "extension/trust/act_as.h"

extern "C" {
#include <port/pg_bswap.h>
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
            "The version of its events is their seq.", "Omit version.");
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
  return "event " + UuidText(*event.id) + " already exists in outbox \"" + facts.name + "\"";
}
constexpr char kStoredHint[] =
    "Omit event_id to get a new id. To emit an event only once even if the call is repeated, use "
    "source_event_id.";

// Whether an id that the caller has given has to be looked up in all generations of the log.
bool MustLookUp(const OutboxFacts& facts, const EmittedEvent& event) {
  return event.id_is_given && facts.is_log;
}

LogRow RowOf(const OutboxFacts& facts, const EmittedEvent& event, const pg_uuid_t* id, int64 seq,
             int64 version) {
  LogRow row{.seq = Int64GetDatum(seq),
             .id = UUIDPGetDatum(id),
             .aggregate_type = event.aggregate_type.datum,
             .aggregate_id = event.aggregate_id.datum,
             .event_type = event.event_type.datum,
             .version = Int64GetDatum(version),
             .schema_version = event.schema_version.datum,
             .payload = event.payload,
             .attributes = AttributesDatum(event),
             .occurred_at = TimestampTzGetDatum(event.occurred_at)};
  if (facts.is_log) {
    row.txid = CurrentTxid();
    row.generation = Int16GetDatum(GenerationOfNow(facts));
    row.origin = Int32GetDatum(ClusterOrigin());
  }
  return row;
}

// Whether the row is stored.
bool StoreRow(Outbox* outbox, const EmittedEvent& event, int64 seq, int64 version) {
  pg_uuid_t id = *event.id;
  const LogRow row = RowOf(outbox->facts(), event, &id, seq, version);
  if (outbox->facts().is_log && outbox->InsertIntoLog(row)) return true;
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
      error.hint = "Remove it, or change the type of the column to json: ALTER TABLE " +
                   facts.name + " ALTER COLUMN " + column.name + " TYPE json.";
    }
    throw;
  }
}

void Insert(Outbox* outbox, const EmittedEvent& event, int64 seq, int64 version) {
  const OutboxFacts& facts = outbox->facts();
  CheckFitsJsonb(facts, event);
  const EmittedHere emitted_here;
  try {
    if (StoreRow(outbox, event, seq, version)) return;
  } catch (PostgresError& error) {
    // The partitions of a log have primary keys with their own names.
    if (error.sqlstate == ERRCODE_UNIQUE_VIOLATION &&
        (facts.is_log ? error.constraint_name.ends_with("_pkey")
                      : error.constraint_name == facts.primary_key)) {
      error.message = StoredMessage(facts, event);
      error.hint = kStoredHint;
    }
    throw;
  }
  Throw(ERRCODE_TRIGGERED_ACTION_EXCEPTION,
        "a trigger of outbox \"" + facts.name + "\" suppressed the insert",
        "An event that outbox_emit has accepted must not be lost.",
        "Let the trigger return the row.");
}

// The key of an event of a table is in an index that every INSERT pays for: it is the aggregate id.
void CheckMayPass(const OutboxFacts& facts) {
  if (facts.is_log) return;
  Throw(ERRCODE_FEATURE_NOT_SUPPORTED,
        "outbox \"" + facts.name + "\" does not support key_may_pass",
        "It is a table outbox, which keeps the order of each key.",
        "Emit the event to a log outbox, or with another aggregate_id. Without key_may_pass, later "
        "events of the key wait for it.");
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
                               int64* version) {
  if (!event.source_event_id.has_value() && !outbox->facts().columns.VersionIsSeq() &&
      !MustLookUp(outbox->facts(), event)) {
    const Aggregate aggregate = AggregateOf(event);
    if (!event.version.has_value()) {
      *version = CountVersionWithoutSql(*outbox, aggregate);
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

// The places of changes in the order of their keys, and where those are equal, in their own order.
std::vector<uint32> SortedByKey(std::span<const Change> changes) {
  struct Place {
    uint64 begin;  // of the key
    uint32 number;
  };
  std::vector<Place> places(changes.size());
  for (uint32 i = 0; i < changes.size(); ++i) {
    const std::string_view key = changes[i].aggregate_id.view;
    uint64 begin = 0;
    std::memcpy(&begin, key.data(), std::min(key.size(), sizeof begin));
    places[i] = {pg_ntoh64(begin), i};
  }
  std::sort(places.begin(), places.end(), [&](const Place& one, const Place& other) {
    if (one.begin != other.begin) return one.begin < other.begin;
    const int order =
        changes[one.number].aggregate_id.view.compare(changes[other.number].aggregate_id.view);
    return order != 0 ? order < 0 : one.number < other.number;
  });
  std::vector<uint32> numbers(places.size());
  std::transform(places.begin(), places.end(), numbers.begin(),
                 [](const Place& place) { return place.number; });
  return numbers;
}

// Counts the versions of a batch.
class VersionsOfBatch {
 public:
  // `event` has what the changes have in common.
  VersionsOfBatch(Outbox* outbox, EmittedEvent* event, std::span<const Change> changes)
      : outbox_(outbox),
        event_(event),
        changes_(changes),
        order_(SortedByKey(changes)),
        versions_(changes.size()) {}

  // `counter` is open, or nullptr: then all are counted by statements.
  std::vector<int64> Count(PlainTable* counter) {
    const Datum type = event_->aggregate_type.datum;
    std::vector<EventCount> counts = ByAggregate();
    const auto in_memory =
        std::stable_partition(counts.begin(), counts.end(), [&](const EventCount& count) {
          return counter != nullptr && !IsCountedInMemory(*outbox_, {type, count.aggregate_id});
        });
    for (auto count = in_memory; count != counts.end(); ++count) CountOneByOne(*count);
    for (std::span<EventCount> left{counts.begin(), in_memory}; !left.empty();) {
      const size_t counted = CountVersionsInTable(*outbox_, counter, type, left);
      for (const EventCount& count : left.first(counted)) {
        for (int64 i = 0; i < count.events; ++i) {
          versions_[order_[count.place + i]] = count.version - count.events + 1 + i;
        }
      }
      left = left.subspan(counted);
      if (left.empty()) break;
      CountOneByOne(left.front());
      left = left.subspan(1);
    }
    return std::move(versions_);
  }

 private:
  std::vector<EventCount> ByAggregate() const {
    std::vector<EventCount> counts;
    std::string_view last;
    for (uint32 place = 0; place < order_.size(); ++place) {
      const Change& change = changes_[order_[place]];
      if (place > 0 && change.aggregate_id.view == last) {
        ++counts.back().events;
        continue;
      }
      last = change.aggregate_id.view;
      counts.push_back({change.aggregate_id.datum, 1, change.is_likely_first, 0, place});
    }
    return counts;
  }

  void CountOneByOne(const EventCount& count) {
    for (int64 i = 0; i < count.events; ++i) {
      const uint32 number = order_[count.place + i];
      event_->aggregate_id = changes_[number].aggregate_id;
      Prepare(outbox_, *event_, false, &versions_[number]);
    }
  }

  Outbox* outbox_;
  EmittedEvent* event_;
  std::span<const Change> changes_;
  std::vector<uint32> order_;  // the places of the changes in the order of their keys
  std::vector<int64> versions_;
};

// Stores events of a log whose tables are open.
void StoreRows(const Outbox& outbox, const EmittedEvent& common, std::span<const Change> changes,
               std::span<const int64> versions, OpenTables* tables) {
  const OutboxFacts& facts = outbox.facts();
  EmittedEvent event = common;
  std::vector<pg_uuid_t> ids(changes.size());
  std::vector<LogRow> rows;
  rows.reserve(changes.size());
  const LogRow pattern = RowOf(facts, common, ids.data(), 0, 0);
  for (size_t i = 0; i < changes.size(); ++i) {
    SetChange(&event, changes[i]);
    CheckMessage(event, versions[i]);
    ids[i] = *event.id;
    LogRow& row = rows.emplace_back(pattern);
    row.seq = Int64GetDatum(NextSeq(facts));
    row.id = UUIDPGetDatum(&ids[i]);
    row.aggregate_id = event.aggregate_id.datum;
    row.event_type = event.event_type.datum;
    row.version = Int64GetDatum(versions[i]);
    row.payload = event.payload;
  }
  tables->InsertIntoLog(rows);
}

}  // namespace

std::shared_ptr<Outbox> OpenOutbox(Oid relation) {
  if (!OidIsValid(relation)) relation = DefaultOutbox();
  if (!OidIsValid(relation)) relation = OnlyOutbox();
  CheckInsertPrivilege(FindOutbox(relation)->facts());
  Pg([&] { LockRelationOid(relation, RowExclusiveLock); });
  return FindOutbox(relation);
}

Receipt StoreEvent(Outbox* outbox, const EmittedEvent& event) {
  const OutboxFacts& facts = outbox->facts();
  if (event.key_may_pass) CheckMayPass(facts);

  int64 version = event.version.value_or(0);
  // A caller that gives versions to events of a log has locked its aggregate: one INSERT is all.
  const bool is_free = IsFreeVersion(*outbox, event);
  if (!is_free || MustLookUp(facts, event)) {
    if (const auto stored = Prepare(outbox, event, is_free, &version)) return *stored;
  }
  if (version != 0) CheckMessage(event, version);
  const int64 seq = NextSeq(facts);
  if (version == 0) {
    version = seq;
    CheckMessage(event, version);
  }
  Insert(outbox, event, seq, version);
  WarnIfUnserved(facts.relation);
  RequestPublishersAtCommit(facts.relation);
  CountEmittedAtCommit(facts.relation, 1);
  return Receipt{*event.id, version};
}

bool TakesEventsTogether(Outbox* outbox) {
  const OutboxFacts& facts = outbox->facts();
  if (!facts.is_log) return false;
  OpenTables tables;
  outbox->Open(GenerationOfNow(facts), &tables);
  const bool takes = tables.AreOpen();
  tables.Close();
  return takes;
}

bool StoreEvents(Outbox* outbox, const EmittedEvent& common, std::span<const Change> changes,
                 bool* all_first) {
  const OutboxFacts& facts = outbox->facts();
  if (!facts.is_log) return false;
  OpenTables tables;
  outbox->Open(GenerationOfNow(facts), &tables);
  if (!tables.AreOpen()) return false;
  EmittedEvent event = common;
  const std::vector<int64> versions =
      VersionsOfBatch(outbox, &event, changes).Count(tables.counter());
  *all_first = true;
  for (size_t i = 0; i < changes.size(); ++i) {
    if (changes[i].is_likely_first && versions[i] > 1) *all_first = false;
  }
  StoreRows(*outbox, common, changes, versions, &tables);
  tables.Close();
  WarnIfUnserved(facts.relation);
  RequestPublishersAtCommit(facts.relation);
  CountEmittedAtCommit(facts.relation, changes.size());
  return true;
}

std::vector<int64> CountVersions(Outbox* outbox, const EmittedEvent& common,
                                 std::span<const Change> changes) {
  EmittedEvent event = common;
  VersionsOfBatch versions(outbox, &event, changes);
  PlainTable counter;
  if (!outbox->OpenCounter(&counter)) return versions.Count(nullptr);
  std::vector<int64> counted = versions.Count(&counter);
  Pg([&] { ClosePlainTable(&counter); });
  return counted;
}

std::shared_ptr<Outbox> ReopenOutbox(const Outbox& counted) {
  std::shared_ptr<Outbox> outbox = OpenOutbox(counted.facts().relation);
  if (outbox->facts() == counted.facts()) return outbox;
  Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        "outbox \"" + outbox->facts().name + "\" was altered while events were emitted to it");
}

void StoreCountedEvents(Outbox* outbox, const EmittedEvent& common, std::span<const Change> changes,
                        std::span<const int64> versions) {
  const OutboxFacts& facts = outbox->facts();
  OpenTables tables;
  if (facts.is_log) outbox->Open(GenerationOfNow(facts), &tables);
  if (tables.AreOpen()) {
    StoreRows(*outbox, common, changes, versions, &tables);
    tables.Close();
  } else {
    EmittedEvent event = common;
    for (size_t i = 0; i < changes.size(); ++i) {
      SetChange(&event, changes[i]);
      CheckMessage(event, versions[i]);
      Insert(outbox, event, NextSeq(facts), versions[i]);
    }
  }
  WarnIfUnserved(facts.relation);
  RequestPublishersAtCommit(facts.relation);
  CountEmittedAtCommit(facts.relation, changes.size());
}

void SetChange(EmittedEvent* event, const Change& change) {
  event->aggregate_id = change.aggregate_id;
  event->event_type = change.event_type;
  event->payload = change.payload;
  event->data = View(change.payload);
  event->id = UuidV7();
}

}  // namespace postbox
