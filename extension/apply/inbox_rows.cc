#include "extension/apply/inbox_rows.h"

#include "extension/apply/inbox_tables.h"
#include "extension/apply/unknown_code.h"
#include "extension/base/relation.h"
#include "extension/registry/inbox_shape.h"

namespace postbox {
namespace {

// The columns of the inbox that come from the event, after event_id, in their order.
constexpr EventField kInboxFields[] = {EventField::kEventType, EventField::kAggregateType,
                                       EventField::kAggregateId, EventField::kVersion};

Datum KeysOf(const std::vector<const InboxEvent*>& events) {
  return Pg([&] {
    auto* values = static_cast<Datum*>(palloc(events.size() * sizeof(Datum)));
    for (size_t i = 0; i < events.size(); ++i) values[i] = UUIDPGetDatum(&events[i]->id);
    return ArrayValue(UUIDOID, values, nullptr, events.size());
  });
}

// Whether the current user may insert into the partition and read it.
bool MayInsertInto(Oid partition) {
  return Pg([&] {
    return pg_class_aclmask(partition, GetUserId(), ACL_INSERT | ACL_SELECT, ACLMASK_ALL) ==
           (ACL_INSERT | ACL_SELECT);
  });
}

}  // namespace

InboxRows::InboxRows(Oid relation, std::string name, int generation) : name_(std::move(name)) {
  partitions_ = CheckInboxTable(relation, name_);
  Oid outcome_array = InvalidOid;
  Pg([&] {
    outcome_type_ = PostboxType("outcome");
    outcome_array = get_array_type(outcome_type_);
    OutcomeOids(outcome_oids_);
  });
  for (size_t other = 0; other < partitions_.size(); ++other) {
    if (other != static_cast<size_t>(generation)) others_.push_back(partitions_[other]);
  }
  const InboxPartition& into = partitions_[static_cast<size_t>(generation)];
  has_triggers_ = WritingRunsUnknownCode(relation, Whole::kNo) ||
                  std::any_of(partitions_.begin(), partitions_.end(), [](const auto& one) {
                    return WritingRunsUnknownCode(one.relation, Whole::kNo);
                  });
  // To route a row from the inbox to its partition costs more than to insert it.
  const bool direct = !has_triggers_ && MayInsertInto(into.relation);
  const std::string current = GenerationLiteral(generation);
  const std::string insert = "INSERT INTO " + (direct ? RelationName(into.relation) : name_) +
                             " (event_id, event_type, aggregate_type, aggregate_id, version, "
                             "outcome, generation) ";
  const std::string once = " ON CONFLICT (event_id, generation) DO NOTHING";
  insert_ = Statement(insert + "VALUES ($1, $2, $3, $4, $5, $6, " + current + ")" + once,
                      {UUIDOID, TEXTOID, TEXTOID, TEXTOID, INT8OID, outcome_type_});
  insert_all_ = Statement(
      insert + "SELECT e.*, " + current + " FROM unnest($1, $2, $3, $4, $5, $6) AS e" + once +
          " RETURNING event_id",
      {UUIDARRAYOID, TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, INT8ARRAYOID, outcome_array});
  set_outcome_ = Statement::ByKey("UPDATE " + name_ +
                                      " SET outcome = $2 WHERE event_id = ANY ($1) "
                                      "AND generation = " +
                                      current,
                                  {UUIDARRAYOID, outcome_type_});
  count_ = Statement::ByKey(
      "SELECT count(DISTINCT event_id) FROM " + name_ + " WHERE event_id = ANY ($1)",
      {UUIDARRAYOID});
  delete_given_up_ = Statement::ByKey("DELETE FROM " + name_ +
                                          " WHERE event_id = $1 AND outcome IN ('rejected', "
                                          "'parked')",
                                      {UUIDOID});
  set_rejected_ = Statement::ByKey("UPDATE " + name_ +
                                       " SET outcome = 'rejected' WHERE event_id = $1 AND outcome "
                                       "= 'parked'",
                                   {UUIDOID});
}

std::vector<bool> InboxRows::SeenBefore(std::span<const pg_uuid_t* const> ids) const {
  std::vector<bool> seen(ids.size());
  for (const InboxPartition& other : others_) FindSeen(other, ids, &seen);
  return seen;
}

bool InboxRows::Insert(const InboxEvent& event, Outcome outcome) {
  const pg_uuid_t* const id = &event.id;
  if (SeenBefore({&id, 1})[0]) return false;
  Datum values[6] = {UUIDPGetDatum(&event.id)};
  char nulls[7] = "      ";
  for (size_t i = 0; i < std::size(kInboxFields); ++i) {
    values[i + 1] = event.Value(kInboxFields[i]);
    if (event.IsNull(kInboxFields[i])) nulls[i + 1] = 'n';
  }
  values[5] = ValueOf(outcome);
  if (insert_.Run(values, nulls) > 0) return true;
  if (has_triggers_) Require({&event});
  return false;
}

std::vector<bool> InboxRows::InsertAll(const std::vector<InboxEvent>& events,
                                       const std::vector<Outcome>& outcomes) {
  std::vector<size_t> order(events.size());
  for (size_t i = 0; i < events.size(); ++i) order[i] = i;
  const auto key = [&](size_t i) { return events[i].id.data; };
  std::stable_sort(order.begin(), order.end(), [&](size_t left, size_t right) {
    return std::memcmp(key(left), key(right), UUID_LEN) < 0;
  });
  std::vector<const pg_uuid_t*> ids;
  for (const size_t i : order) ids.push_back(&events[i].id);
  const std::vector<bool> seen = SeenBefore(ids);
  size_t count = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (!seen[i]) order[count++] = order[i];
  }
  order.resize(count);

  Datum parameters[6];
  Pg([&] {
    auto* values = static_cast<Datum*>(palloc(count * sizeof(Datum)));
    auto* nulls = static_cast<bool*>(palloc0(count * sizeof(bool)));
    for (size_t i = 0; i < count; ++i) values[i] = UUIDPGetDatum(&events[order[i]].id);
    parameters[0] = ArrayValue(UUIDOID, values, nulls, count);
    for (size_t i = 0; i < count; ++i) {
      values[i] = ValueOf(outcomes[order[i]]);
    }
    parameters[5] = ArrayValue(outcome_type_, values, nulls, count);
    for (size_t field = 0; field < std::size(kInboxFields); ++field) {
      for (size_t i = 0; i < count; ++i) {
        values[i] = events[order[i]].Value(kInboxFields[field]);
        nulls[i] = events[order[i]].IsNull(kInboxFields[field]);
      }
      parameters[field + 1] = ArrayValue(EventFieldType(kInboxFields[field]), values, nulls, count);
    }
  });
  const uint64 rows = insert_all_.Run(parameters);
  // The owner of the inbox may have changed its columns, and given it triggers that change values.
  if (rows > 0) RequireColumnType(1, UUIDOID);

  // RETURNING keeps the order.
  std::vector<bool> inserted(events.size());
  uint64 row = 0;
  for (size_t i = 0; i < count && row < rows; ++i) {
    bool null = false;
    const pg_uuid_t* id = DatumGetUUIDP(DatumColumn(row, 1, &null));
    if (null) break;
    if (std::memcmp(id->data, key(order[i]), UUID_LEN) != 0) continue;
    inserted[order[i]] = true;
    ++row;
  }
  FreeRows();
  if (row != rows) {
    Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
          "inbox \"" + name_ + "\" did not store the ids of the events",
          "A trigger on its table has changed event_id.", "Drop the trigger.");
  }
  return inserted;
}

void InboxRows::SetOutcome(const std::vector<const InboxEvent*>& events, Outcome outcome) {
  if (events.empty()) return;
  const Datum parameters[] = {KeysOf(events), ValueOf(outcome)};
  if (set_outcome_.Run(parameters) == events.size()) return;
  Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        "inbox \"" + name_ + "\" did not store the outcome of events",
        "A trigger on its table prevents it, or has deleted their rows.", "Drop the trigger.");
}

void InboxRows::Require(const std::vector<const InboxEvent*>& events) {
  if (events.empty()) return;
  const Datum keys = KeysOf(events);
  int64 rows = 0;
  count_.RunForInt64(&keys, nullptr, &rows);
  if (rows == static_cast<int64>(events.size())) return;
  Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        "inbox \"" + name_ + "\" lost events while they were applied",
        "A trigger or a handler has deleted their rows or prevented their insertion. Without its "
        "row an event takes effect each time it is delivered.",
        "Change the trigger or the handler so that it leaves these rows alone.");
}

void InboxRows::DeleteGivenUp(const InboxEvent& event) {
  const Datum key = UUIDPGetDatum(&event.id);
  delete_given_up_.Run(&key);
}

void InboxRows::SetRejected(const InboxEvent& event) {
  const Datum key = UUIDPGetDatum(&event.id);
  set_rejected_.Run(&key);
}

}  // namespace postbox
