#include "extension/apply/target_rows.h"

extern "C" {
#include <storage/lmgr.h>
#include <utils/rls.h>
#include <utils/snapmgr.h>
}

namespace postbox {
namespace {

std::vector<Oid> TypesOf(const ProjectionColumns& columns, size_t count) {
  std::vector<Oid> types;
  for (size_t i = 0; i < count; ++i) types.push_back(columns.columns[i].type);
  return types;
}

}  // namespace

TargetRows::TargetRows(Oid target, const ProjectionColumns& columns)
    : target_(target),
      name_(columns.target_name),
      primary_key_(columns.primary_key),
      code_(target),
      columns_(columns.Names()),
      version_{columns.version().number, columns.version().type},
      writes_(columns.Sql(code_.writes), TypesOf(columns, columns.columns.size())) {
  for (size_t i = 0; i < columns.key_size; ++i) {
    key_.push_back({columns.columns[i].number, columns.columns[i].type, Datum{0}});
  }
  const TargetSql sql = columns.Sql(code_.writes);
  const std::vector<Oid> key_types = TypesOf(columns, columns.key_size);
  delete_older_ = Statement::ByKey(sql.DeleteOlder(), TypesOf(columns, columns.key_size + 1));
  delete_any_ = Statement::ByKey(sql.DeleteAny(), key_types);
  if (sql.is_shadow()) {
    mark_deleted_ = Statement(sql.MarkDeleted(), TypesOf(columns, columns.key_size + 1));
  }
  stored_version_ = Statement::ByKey(sql.StoredVersion(), key_types);
}

// The triggers of partitions and of tables that inherit are not those of their parent.
TargetRows::RowCode::RowCode(Oid table) {
  Parameters key;
  key.AddOid(OIDOID, table);
  constexpr char kQuery[] =
      "SELECT t.writes OR o.others, t.deletes OR o.others FROM pg_catalog.pg_class c, "
      "LATERAL (SELECT coalesce(bool_or(g.tgtype & 20 <> 0), false), "
      "coalesce(bool_or(g.tgtype & 8 <> 0), false) FROM pg_catalog.pg_trigger g "
      "WHERE g.tgrelid = c.oid AND NOT g.tgisinternal AND g.tgtype & 3 = 3) t(writes, deletes), "
      "LATERAL (SELECT c.relhasrules OR c.relhassubclass OR c.relkind <> 'r') o(others) "
      "WHERE c.oid = $1";
  if (Run(kQuery, key) == 0) return;
  writes = BoolColumn(0, 1);
  deletes = BoolColumn(0, 2);
}

void TargetRows::ThrowNotWritten(const BoundValues& row, int64 version) {
  int64 stored = 0;
  std::string state = "There is no row with its key";
  if (FindStored(row, &stored)) {
    state = "The row with its key has version " + std::to_string(stored);
  } else if (OidIsValid(primary_key_) && FindPrimaryKey(row, &stored)) {
    state = "The row with its key is hidden by a policy";
  }
  Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, "event was not written to " + name_,
        state + ", and the event has version " + std::to_string(version) +
            ". A trigger or a policy of the table has suppressed it.",
        "Change the trigger or the policy so that it admits the event, or remove the event type "
        "from the projection.");
}

void TargetRows::ThrowNotDeleted(const std::string& why) const {
  Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, "event did not delete its row from " + name_, why,
        "Change the trigger, rule or policy so that the row is deleted. A trigger that keeps "
        "deleted rows must set their version column to postbox.event_version().");
}

void TargetRows::ThrowKept(int64 version) const {
  ThrowNotDeleted("The row is still there, with version " + std::to_string(version) +
                  ". A trigger, a rule or a policy of the table keeps it.");
}

void TargetRows::ThrowHidden() const { ThrowNotDeleted("A policy of the table hides the row."); }

// Runs one of the statements that write the row. Whether it did.
bool TargetRows::RunWrite(Statement& statement, const BoundValues& row, int64 version) {
  if (statement.Run(row.values.data(), row.nulls.data()) == 0) return false;
  if (!code_.writes) return true;
  RequireColumnType(1, INT8OID);
  const int64 stored = Int64Column(0, 1);
  FreeRows();
  if (stored >= version) return true;
  Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, "event was not written to " + name_,
        "A trigger of the table has left the version column at " + std::to_string(stored) +
            ", and the event has version " + std::to_string(version) + ".",
        "Change the trigger so that it keeps the version of the event.");
}

// Writes the row of the event. False if there is one that is as new. What one statement does not
// see yet, the next one does, so the second UPDATE finds a row that came in between.
bool TargetRows::Write(const BoundValues& row, int64 version) {
  const std::shared_ptr<WriteStatements::OfRow> statements = writes_.For(row.present);
  const bool whole = !statements->update.has_text();
  int64 stored = 0;
  for (int attempt = 0; !whole && attempt < 2; ++attempt) {
    if (RunWrite(statements->update, row, version)) return true;
    if (!FindStored(row, &stored)) break;
    if (stored >= version) return false;
    if (attempt == 1) ThrowNotWritten(row, version);
  }
  if (RunWrite(statements->upsert, row, version)) return true;
  // ON CONFLICT has locked the row that it did not change.
  const bool there =
      FindStored(row, &stored) || (OidIsValid(primary_key_) && FindPrimaryKey(row, &stored));
  if (there && stored >= version) return false;
  ThrowNotWritten(row, version);
}

bool TargetRows::DeleteOlder(const BoundValues& row) {
  return delete_older_.Run(row.values.data(), row.nulls.data()) > 0;
}

bool TargetRows::DeleteAny(const BoundValues& row) {
  return delete_any_.Run(row.values.data(), row.nulls.data()) > 0;
}

bool TargetRows::MarkDeleted(const BoundValues& row, int64 version) {
  if (mark_deleted_.Run(row.values.data(), row.nulls.data()) > 0) return true;
  int64 stored = 0;
  if (FindStored(row, &stored) && stored >= version) return false;
  ThrowNotWritten(row, version);
}

bool TargetRows::FindStored(const BoundValues& key, int64* version) {
  return stored_version_.RunForInt64(key.values.data(), key.nulls.data(), version);
}

RowDifference TargetRows::Compare(const BoundValues& row, int64 version) {
  const std::shared_ptr<WriteStatements::OfRow> statements = writes_.For(row.present);
  RowDifference found;
  if (statements->difference.Run(row.values.data(), row.nulls.data()) == 0) {
    found.problem = "missing";
    return found;
  }
  found.stored = Int64Column(0, 1);
  if (found.stored != version) {
    found.problem = found.stored < version ? "older" : "newer";
  } else if (code_.writes) {
    found.problem = "unchecked";
    found.details = {"a trigger or rule of " + name_ + " may change what is written"};
  } else {
    int result = 1;
    for (size_t i = key_.size() + 1; i < columns_.size(); ++i) {
      if (row.present[i] == '1' && BoolColumn(0, ++result)) found.details.push_back(columns_[i]);
    }
    if (!found.details.empty()) found.problem = "differs";
  }
  FreeRows();
  return found;
}

bool TargetRows::FindStoredNow(const BoundValues& key, int64* version) {
  const SPIPlanPtr plan = stored_version_.Plan();
  const bool there = Pg([&] {
    const int result =
        SPI_execute_snapshot(plan, const_cast<Datum*>(key.values.data()), key.nulls.data(),
                             GetLatestSnapshot(), InvalidSnapshot, true, false, 1);
    if (result < 0) elog(ERROR, "could not execute: %s", SPI_result_code_string(result));
    return SPI_processed > 0;
  });
  if (there) *version = Int64Column(0, 1);
  FreeRows();
  return there;
}

// A row with the key, committed or not and whatever policies hide. It is locked.
bool TargetRows::FindPrimaryKey(const BoundValues& key, int64* version) {
  std::vector<SearchColumn> columns = key_;
  for (size_t i = 0; i < columns.size(); ++i) columns[i].value = key.values[i];
  return DirtyFind(target_, primary_key_, columns, version_, version);
}

bool TargetRows::FindAny(const BoundValues& key, int64* version) {
  if (OidIsValid(primary_key_)) return FindPrimaryKey(key, version);
  Pg([&] { LockRelationOid(target_, ShareRowExclusiveLock); });
  if (FindStoredNow(key, version)) return true;
  if (Pg([&] { return check_enable_rls(target_, InvalidOid, true) == RLS_ENABLED; })) {
    ThrowNotDeleted(
        "No row with its key is seen, but row-level security may hide one, and the key "
        "of the projection is not the primary key of a plain table.");
  }
  return false;
}

}  // namespace postbox
