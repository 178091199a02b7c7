#include "extension/emit/outbox_cache.h"

#include "extension/base/catalog.h"
#include "extension/base/relation.h"
#include "extension/lifecycle/define_settings.h"
#include "extension/shared/settings.h"
#include "extension/trust/act_as.h"

extern "C" {
#include <catalog/partition.h>
#include <utils/plancache.h>
}

namespace postbox {
namespace {

struct Entry {
  std::shared_ptr<Outbox> outbox;
  bool stale;
};

// Never destroyed: invalidation callbacks come until the process ends.
std::unordered_map<Oid, Entry>& entries = *new std::unordered_map<Oid, Entry>;

// postbox.outbox itself; InvalidOid while not known.
Oid registry = InvalidOid;

// The only outbox of each role that has asked, and the outboxes among which it was found, with the
// table of publications.
std::unordered_map<Oid, Oid>& only_outboxes = *new std::unordered_map<Oid, Oid>;
std::unordered_set<Oid>& registered = *new std::unordered_set<Oid>;

// The logs of partitions that rows were inserted into.
std::unordered_map<Oid, Oid>& logs = *new std::unordered_map<Oid, Oid>;

// The number of messages so far. What was read while it did not change is right.
uint64 changes = 0;

// Callbacks run wherever a lock is taken, so they only set marks.
void RelationChanged(Datum /*argument*/, Oid relation) {
  ++changes;
  const bool all = relation == InvalidOid || relation == registry;
  if (all) registry = InvalidOid;
  // A GRANT sends a message about its table.
  if (all || registered.contains(relation)) only_outboxes.clear();
  if (all || logs.contains(relation)) logs.clear();
  for (auto& [key, entry] : entries) {
    const OutboxFacts& facts = entry.outbox->facts();
    if (all || relation == key || relation == facts.counter || relation == facts.sequence)
      entry.stale = true;
  }
}

void SchemaChanged(Datum /*argument*/, SystemCacheId /*cache*/, uint32 /*hash*/) {
  RelationChanged(Datum{0}, InvalidOid);
}

void RolesChanged(Datum /*argument*/, SystemCacheId /*cache*/, uint32 /*hash*/) {
  ++changes;
  only_outboxes.clear();
}

void WatchInvalidations() {
  static bool watching = false;
  if (watching) return;
  Pg([] {
    CacheRegisterRelcacheCallback(RelationChanged, Datum{0});
    CacheRegisterSyscacheCallback(NAMESPACEOID, SchemaChanged, Datum{0});
    CacheRegisterSyscacheCallback(AUTHOID, RolesChanged, Datum{0});
    CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, RolesChanged, Datum{0});
  });
  watching = true;
}

struct StatementText {
  std::string sql;
  std::vector<Oid> types;
};

StatementText TextOf(OutboxStatement statement, const OutboxFacts& facts) {
  const std::string count = "INSERT INTO " + facts.counter_name +
                            " AS c (aggregate_type, aggregate_id, version) VALUES ($1, $2, ";
  const std::string conflict = ") ON CONFLICT (aggregate_type, aggregate_id) DO UPDATE SET ";
  const std::string update = "UPDATE ONLY " + facts.counter_name + " AS c SET version = ";
  // The owner may have altered the type.
  const std::string version = "version::pg_catalog.int8";
  const std::string of_row = " WHERE c.aggregate_type = $1 AND c.aggregate_id = $2";
  switch (statement) {
    case OutboxStatement::kNextVersion:
      return {count + std::to_string(facts.version_floor + 1) + conflict +
                  "version = c.version + 1 RETURNING " + version,
              {TEXTOID, TEXTOID}};
    case OutboxStatement::kTakeVersion:
      return {count + "$3" + conflict +
                  "version = EXCLUDED.version WHERE c.version < EXCLUDED.version RETURNING " +
                  version,
              {TEXTOID, TEXTOID, INT8OID}};
    case OutboxStatement::kLockVersion:
      return {count + std::to_string(facts.version_floor) + conflict +
                  "version = c.version RETURNING " + version,
              {TEXTOID, TEXTOID}};
    case OutboxStatement::kNextVersionOfRow:
      return {update + "c.version + 1" + of_row + " RETURNING " + version, {TEXTOID, TEXTOID}};
    case OutboxStatement::kTakeVersionOfRow:
      return {update + "$3" + of_row + " AND c.version < $3 RETURNING " + version,
              {TEXTOID, TEXTOID, INT8OID}};
    case OutboxStatement::kLockVersionOfRow:
      return {update + "c.version" + of_row + " RETURNING " + version, {TEXTOID, TEXTOID}};
    case OutboxStatement::kLastVersion:
      return {"SELECT " + version + " FROM " + facts.counter_name +
                  " WHERE aggregate_type = $1 AND aggregate_id = $2",
              {TEXTOID, TEXTOID}};
    case OutboxStatement::kFindEvent:
      return {"SELECT (" + facts.columns.Version() + ")::pg_catalog.int8 FROM " + facts.name +
                  " WHERE " + facts.columns.id.name + " = $1",
              {UUIDOID}};
    case OutboxStatement::kInsert:
      break;
  }
  StatementText insert = {facts.columns.InsertInto(facts.name),
                          {UUIDOID, INT8OID, TEXTOID, TEXTOID, TEXTOID, INT8OID, TEXTOID, BYTEAOID,
                           JSONBOID, TIMESTAMPTZOID}};
  if (!facts.is_log) return insert;
  insert.sql = facts.columns.InsertInto(facts.name, {"txid", "generation", "origin"});
  for (const Oid type : {XID8OID, INT2OID, INT4OID}) insert.types.push_back(type);
  return insert;
}

}  // namespace

Statement& Outbox::Planned(OutboxStatement which) {
  Statement& statement = statements_[static_cast<size_t>(which)];
  if (!statement.has_text()) {
    StatementText text = TextOf(which, facts_);
    statement = Statement::ByKey(std::move(text.sql), std::move(text.types));
  }
  if (!statement.IsPlanned()) {
    const ActAs owner(facts_.owner);
    statement.Plan();
  }
  return statement;
}

uint64 Outbox::Run(OutboxStatement statement, Datum* values) {
  return Planned(statement).Run(values);
}

std::shared_ptr<const InsertPlan> Outbox::PlanOfInsert() {
  if (insert_ != nullptr && insert_->IsValid()) return insert_;
  insert_ = nullptr;
  SpiConnection connection;
  FixedSearchPath search_path;
  auto plan = std::make_shared<InsertPlan>(Planned(OutboxStatement::kInsert).Plan());
  if (facts_.is_log) {
    plan->NeedNoRightOn(facts_.relation, {"txid", "generation", "origin"});
  }
  if (plan->IsForEveryone(facts_.relation)) insert_ = plan;
  return plan;
}

std::shared_ptr<const InsertPlan> Outbox::OpenLog(int16 generation, PlainTable* log) {
  if (!facts_.is_log) return nullptr;
  std::shared_ptr<const InsertPlan> plan = PlanOfInsert();
  if (insert_ != plan) return nullptr;
  plan->CheckRights();
  if (!Pg([&] { return OpenLogPartition(facts_.relation, generation, facts_.stamp, log); }))
    return nullptr;
  return plan;
}

bool Outbox::OpenCounter(PlainTable* counter) const {
  return Pg([&] {
    if (!OpenCounterTable(facts_.counter, counter)) return false;
    // The owner of the outbox needs the rights that the statements would need.
    if (OwnerMayCount(facts_)) return true;
    ClosePlainTable(counter);
    return false;
  });
}

void Outbox::Open(int16 generation, OpenTables* tables) {
  if (!OpenCounter(&tables->counter_)) return;
  tables->plan_ = OpenLog(generation, &tables->log_);
  if (tables->plan_ == nullptr) Pg([&] { ClosePlainTable(&tables->counter_); });
}

void OpenTables::Close() {
  if (!AreOpen()) return;
  Pg([&] {
    ClosePlainTable(&log_);
    ClosePlainTable(&counter_);
  });
  plan_ = nullptr;
}

void OpenTables::InsertIntoLog(std::span<const LogRow> rows) {
  plan_->As([&] {
    InsertIntoLogPartition(&log_, rows);
    // What comes after sees them.
    CommandCounterIncrement();
    return true;
  });
}

bool Outbox::InsertIntoLog(const LogRow& row) {
  PlainTable opened;
  const auto plan = OpenLog(DatumGetInt16(row.generation), &opened);
  if (plan == nullptr) return false;
  plan->As([&] {
    InsertIntoLogPartition(&opened, row);
    ClosePlainTable(&opened);
    // What comes after sees it.
    CommandCounterIncrement();
    return true;
  });
  return true;
}

uint64 Outbox::Insert(Datum* values) {
  // A separate pointer: a trigger that emits may make this object drop the plan.
  const std::shared_ptr<const InsertPlan> plan = PlanOfInsert();
  if (plan->IsSingle()) return plan->Run(values);
  SpiConnection connection;
  FixedSearchPath search_path;
  return Run(OutboxStatement::kInsert, values);
}

std::shared_ptr<Outbox> FindOutbox(Oid relation) {
  WatchInvalidations();
  const auto found = entries.find(relation);
  if (found != entries.end() && !found->second.stale) return found->second.outbox;
  SpiConnection connection;
  FixedSearchPath search_path;
  const uint64 before = changes;
  std::shared_ptr<Outbox> outbox = found == entries.end() ? nullptr : found->second.outbox;
  OutboxFacts facts;
  try {
    registry = PostboxRelation("outbox");
    facts = ReadOutboxFacts(relation);
  } catch (...) {
    entries.erase(relation);
    throw;
  }
  // Most messages (VACUUM sends one) change none of the facts: the prepared statements stay.
  if (outbox == nullptr || outbox->facts() != facts)
    outbox = std::make_shared<Outbox>(std::move(facts));
  entries[relation] = Entry{outbox, changes != before};
  return outbox;
}

// Read as it is now, whatever the snapshot of the transaction is.
bool IsOutbox(Oid relation) {
  WatchInvalidations();
  const auto found = entries.find(relation);
  if (found != entries.end() && !found->second.stale) return true;
  const Oid outboxes = PostboxRelation("outbox");
  const Oid key = PostboxRelation("outbox_pkey");
  return Pg([&] {
    bool is_outbox = false;
    ForEachCatalogRow(outboxes, key, {{get_attnum(outboxes, "relation"), relation}},
                      [&](HeapTuple /*row*/) { is_outbox = true; });
    return is_outbox;
  });
}

Oid LogOfPartition(Oid partition) {
  WatchInvalidations();
  if (const auto found = logs.find(partition); found != logs.end()) return found->second;
  const uint64 before = changes;
  const Oid log = Pg([&] {
    return get_rel_relispartition(partition) ? get_partition_parent(partition, true) : partition;
  });
  if (changes == before) logs[partition] = log;
  return log;
}

Oid DefaultOutbox() {
  const char* setting = settings().default_outbox;
  if (*setting == '\0' || !DefaultOutboxCounts()) return InvalidOid;
  const Oid relation = Pg([&] {
    List* names = textToQualifiedNameList(cstring_to_text(setting));
    return RangeVarGetRelid(makeRangeVarFromNameList(names), NoLock, true);
  });
  if (!OidIsValid(relation)) {
    Throw(ERRCODE_UNDEFINED_TABLE, std::string("outbox \"") + setting + "\" does not exist",
          "The setting postbox.default_outbox names it.",
          "Create it with postbox.create_outbox, or correct the setting.");
  }
  return relation;
}

namespace {

[[noreturn]] void ThrowNotOne(uint64 count, bool none_permitted, const std::string& names) {
  if (count == 0) {
    Throw(ERRCODE_UNDEFINED_TABLE, "there is no outbox in this database", "",
          "Create one with postbox.create_outbox.");
  }
  if (none_permitted) {
    Throw(ERRCODE_INSUFFICIENT_PRIVILEGE, "permission denied for all outboxes of this database",
          "The outboxes are " + names + ".", "To emit, a role needs INSERT on the outbox.");
  }
  std::string hint = "Name one with the parameter outbox or the setting postbox.default_outbox.";
  if (!DefaultOutboxCounts()) {
    hint +=
        " A value set by the caller is ignored in a function that runs as another user; set it in "
        "a SET clause of the function, or for the database.";
  }
  Throw(ERRCODE_AMBIGUOUS_PARAMETER, "there is more than one outbox in this database",
        "The outboxes that the current user may insert into are " + names + ".", hint);
}

}  // namespace

Oid OnlyOutbox() {
  const Oid role = GetUserId();
  if (const auto found = only_outboxes.find(role); found != only_outboxes.end()) {
    return found->second;
  }
  WatchInvalidations();
  SpiConnection connection;
  FixedSearchPath search_path;
  const uint64 before = changes;
  registry = PostboxRelation("outbox");
  const uint64 count = postbox::Run(
      "SELECT o.relation::oid, r.rank, count(*) OVER (PARTITION BY r.rank),"
      " string_agg(o.relation::text, ', ') FILTER (WHERE r.rank > 0) OVER by_name,"
      " string_agg(o.relation::text, ', ') OVER by_name"
      " FROM postbox.outbox o LEFT JOIN pg_class c ON c.oid = o.relation"
      " CROSS JOIN LATERAL (SELECT CASE"
      " WHEN has_any_column_privilege(c.oid, 'INSERT') IS NOT TRUE THEN 0"
      " WHEN pg_get_userbyid(c.relowner) = current_user THEN 3"
      " WHEN EXISTS (SELECT FROM postbox.publication p WHERE p.outbox = o.relation) THEN 2"
      " ELSE 1 END) AS r(rank)"
      " WINDOW by_name AS (ORDER BY o.relation::text COLLATE \"C\""
      " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)"
      " ORDER BY r.rank DESC");
  const bool none_permitted = count > 0 && Int32Column(0, 2) == 0;
  // A sole outbox without the right says itself what is missing.
  if (count != 1 && (count == 0 || none_permitted || Int64Column(0, 3) > 1)) {
    ThrowNotOne(count, none_permitted, count == 0 ? "" : PrintedColumn(0, none_permitted ? 5 : 4));
  }
  const Oid relation = OidColumn(0, 1);
  if (changes != before) return relation;
  if (only_outboxes.empty()) registered.clear();
  for (uint64 row = 0; row < count; ++row) registered.insert(OidColumn(row, 1));
  registered.insert(PostboxRelation("publication"));
  only_outboxes[role] = relation;
  return relation;
}

}  // namespace postbox
