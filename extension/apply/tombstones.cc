#include "extension/apply/tombstones.h"

#include "extension/apply/dirty_find.h"

namespace postbox {

Tombstones::Tombstones(TombstoneTable table)
    : table_(std::move(table)),
      raise_("INSERT INTO " + table_.name +
                 " AS stored (target, key, version) VALUES ($1, $2, $3) "
                 "ON CONFLICT (target, key) DO UPDATE SET version = EXCLUDED.version, deleted_at = "
                 "pg_catalog.now() WHERE stored.version OPERATOR(pg_catalog.<) EXCLUDED.version",
             {REGCLASSOID, TEXTOID, INT8OID}),
      remove_(Statement::ByKey("DELETE FROM " + table_.name + " WHERE target = $1 AND key = $2",
                               {REGCLASSOID, TEXTOID})),
      find_(
          Statement::ByKey("SELECT version FROM " + table_.name + " WHERE target = $1 AND key = $2",
                           {REGCLASSOID, TEXTOID})) {}

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

int64 Tombstones::Find(Oid target, Datum key) {
  const SearchColumn columns[] = {{table_.target, REGCLASSOID, ObjectIdGetDatum(target)},
                                  {table_.key, TEXTOID, key}};
  int64 version = 0;
  DirtyFind(table_.relation, table_.index, columns, {table_.version, INT8OID}, &version);
  return version;
}

int64 Tombstones::FindCommitted(Oid target, Datum key) {
  const Datum values[] = {ObjectIdGetDatum(target), key};
  int64 version = 0;
  find_.RunForInt64(values, nullptr, &version);
  return version;
}

}  // namespace postbox
