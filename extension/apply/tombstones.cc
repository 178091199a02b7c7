#include "extension/apply/tombstones.h"

#include "extension/apply/dirty_find.h"
#include "extension/apply/unknown_code.h"
#include "extension/registry/inbox_shape.h"

namespace postbox {

namespace {

// The condition that no other generation has the key at this version or a later one.
std::string OlderInOthers(const std::string& table, int generation) {
  std::string condition;
  for (int other = 0; other < kInboxGenerations; ++other) {
    if (other == generation) continue;
    condition += std::string(condition.empty() ? "" : " AND ") + "NOT EXISTS (SELECT FROM " +
                 table + " AS other WHERE other.target = $1 AND other.key = $2 AND other.version " +
                 "OPERATOR(pg_catalog.>=) $3 AND other.generation = " + GenerationLiteral(other) +
                 " OFFSET 0)";
  }
  return condition;
}

}  // namespace

Tombstones::Tombstones(TombstoneTable table, int generation)
    : table_(std::move(table)),
      generation_(generation),
      raise_(Statement::ByKey(
          "INSERT INTO " + table_.name +
              " AS stored (target, key, version, generation) SELECT $1, $2, $3, " +
              GenerationLiteral(generation) + " WHERE " + OlderInOthers(table_.name, generation) +
              " ON CONFLICT (target, key, generation) DO UPDATE SET version = EXCLUDED.version, "
              "deleted_at = pg_catalog.now() "
              "WHERE stored.version OPERATOR(pg_catalog.<) EXCLUDED.version",
          {REGCLASSOID, TEXTOID, INT8OID})),
      remove_(Statement::ByKey("DELETE FROM " + table_.name + " WHERE target = $1 AND key = $2",
                               {REGCLASSOID, TEXTOID})),
      find_(Statement::ByKey(
          "SELECT max(version) FROM " + table_.name + " WHERE target = $1 AND key = $2",
          {REGCLASSOID, TEXTOID})) {}

bool Tombstones::RunsUnknownCode() const {
  return WritingRunsUnknownCode(table_.relation, Whole::kNo) ||
         std::any_of(table_.generations.begin(), table_.generations.end(), [](const auto& one) {
           return WritingRunsUnknownCode(one.relation, Whole::kNo);
         });
}

bool Tombstones::Raise(Oid target, Datum key, int64 version) {
  const Datum values[] = {ObjectIdGetDatum(target), key, Int64GetDatum(version)};
  if (raise_.Run(values) > 0) return true;
  if (FindCommitted(target, key) >= version) return false;
  Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        "the version of a deleted key was not stored in " + table_.name,
        "A trigger, a rule or a policy of the table suppresses it. Without it a late event would "
        "bring the row back.",
        "Drop the trigger, rule or policy.");
}

void Tombstones::Remove(Oid target, Datum key) {
  const Datum values[] = {ObjectIdGetDatum(target), key};
  remove_.Run(values);
}

int64 Tombstones::FindIn(const TombstonePartition& partition, Oid target, Datum key) {
  const Datum generation = Int16GetDatum(static_cast<int16>(&partition - &table_.generations[0]));
  const SearchColumn columns[] = {{partition.target, REGCLASSOID, ObjectIdGetDatum(target)},
                                  {partition.key, TEXTOID, key},
                                  {partition.generation, INT2OID, generation}};
  int64 version = 0;
  DirtyFind(partition.relation, partition.index, columns, {partition.version, INT8OID}, &version);
  return version;
}

int64 Tombstones::Find(Oid target, Datum key) {
  int64 version = 0;
  for (const TombstonePartition& partition : table_.generations) {
    version = std::max(version, FindIn(partition, target, key));
  }
  return version;
}

int64 Tombstones::FindCurrent(Oid target, Datum key) {
  return FindIn(table_.generations[static_cast<size_t>(generation_)], target, key);
}

int64 Tombstones::FindCommitted(Oid target, Datum key) {
  const Datum values[] = {ObjectIdGetDatum(target), key};
  int64 version = 0;
  find_.RunForInt64(values, nullptr, &version);
  return version;
}

}  // namespace postbox
