#include "extension/registry/repair.h"

#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/registry/generations.h"

extern "C" {
#include <commands/defrem.h>
#include <storage/lmgr.h>
}

namespace postbox {
namespace {

std::string Joined(const std::vector<std::string>& statements) {
  std::string all;
  for (const std::string& statement : statements) all += (all.empty() ? "" : "; ") + statement;
  return all;
}

}  // namespace

void CheckFreePart(Oid part, const char* what, Oid owner, const TableShape& shape) {
  Parameters key;
  const bool by_generation = shape.options == kByGeneration;
  key.AddOid(REGCLASSOID, part).Add(BOOLOID, BoolGetDatum(by_generation));
  const std::string name = RelationName(part);
  const std::string refused = "\"" + name + "\" cannot be the " + what;
  if (name.empty() ||
      Run("SELECT c.relpersistence = 'p' AND NOT c.relispartition AND CASE WHEN $2 THEN "
          "c.relkind = 'p' AND pg_get_partkeydef(c.oid) = 'LIST (generation)' "
          "ELSE c.relkind = 'r' END, "
          "EXISTS (SELECT FROM postbox.outbox o WHERE c.oid IN (o.relation, o.counter, o.parked)) "
          "OR EXISTS (SELECT FROM postbox.inbox i WHERE c.oid IN (i.relation, i.tombstone)) "
          "FROM pg_class c WHERE c.oid = $1",
          key) == 0) {
    Throw(ERRCODE_UNDEFINED_TABLE, std::string("the ") + what + " does not exist");
  }
  const bool ordinary = BoolColumn(0, 1);
  const bool taken = BoolColumn(0, 2);
  if (!ordinary) {
    Throw(ERRCODE_WRONG_OBJECT_TYPE, refused,
          by_generation ? "It is not a logged table that is partitioned by LIST (generation)."
                        : "It is not an ordinary, logged table.");
  }
  if (taken) {
    Throw(ERRCODE_OBJECT_IN_USE, refused, "It belongs to an outbox or inbox already.");
  }
  const Oid its_owner = RelationOwner(part);
  if (its_owner != owner) {
    Throw(ERRCODE_INSUFFICIENT_PRIVILEGE, refused,
          "It belongs to another role, \"" + RoleName(its_owner) + "\".",
          "Both must have the same owner.");
  }
  const std::string unfit = by_generation ? WhyUnfitPartition(part) : "";
  if (!unfit.empty()) Throw(ERRCODE_WRONG_OBJECT_TYPE, refused, unfit);
  // Defaults and further indexes can be repaired.
  TableShape least = shape;
  least.indexes.clear();
  for (ColumnShape& column : least.columns) column.default_value.clear();
  const std::vector<Flaw> flaws = FindFlaws(part, least);
  if (!flaws.empty()) {
    const std::string& problem = flaws.front().problem;
    Throw(ERRCODE_INVALID_TABLE_DEFINITION, refused,
          problem.starts_with("no ") ? "It has " + problem + "." : "Its " + problem + ".");
  }
}

void LockForRepair(Oid relation) {
  if (IsolationUsesXactSnapshot()) {
    Throw(ERRCODE_ACTIVE_SQL_TRANSACTION, "repairing needs isolation level READ COMMITTED",
          "An older snapshot does not show events that were committed since.");
  }
  Pg([&] { LockRelationOid(relation, AccessExclusiveLock); });
}

void Repair::Do(const Flaw& flaw) {
  flaws_.push_back(flaw);
  if (dry_run_ || flaw.repair.empty()) return;
  const OwnerRights rights(owner_);
  RunAll(flaw.repair);
}

void Repair::DoAll(const std::vector<Flaw>& flaws) {
  for (const Flaw& flaw : flaws) Do(flaw);
}

void Repair::FixOwners(Oid relation) {
  Parameters key;
  key.AddOid(OIDOID, relation);
  const uint64 rows =
      Run("SELECT p.part::oid, p.kind FROM postbox.parts_of(ARRAY[$1]) p "
          "JOIN pg_class c ON c.oid = p.part JOIN pg_class o ON o.oid = p.relation "
          "WHERE c.relowner <> o.relowner ORDER BY p.kind = 'partition', "
          "p.kind DESC, p.part::text",
          key);
  std::vector<std::pair<Oid, std::string>> parts;
  for (uint64 row = 0; row < rows; ++row) parts.emplace_back(OidColumn(row, 1), TextColumn(row, 2));
  for (const std::pair<Oid, std::string>& one : parts) {
    const Oid part = one.first;
    const std::string& kind = one.second;
    if (!dry_run_) Pg([&] { LockRelationOid(part, AccessExclusiveLock); });
    const std::string name = RelationName(part);
    if (name.empty()) continue;
    flaws_.push_back({name,
                      "the " + kind + " belongs to role \"" + RoleName(RelationOwner(part)) + "\"",
                      {"ALTER TABLE " + name + " OWNER TO " + Quoted(RoleName(owner_))}});
    if (!dry_run_) RunAll(flaws_.back().repair);
  }
}

void Repair::Return(FunctionCallInfo fcinfo) const {
  auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
  for (const Flaw& flaw : flaws_) {
    std::array<Datum, 3> values = {TextValue(flaw.object), TextValue(flaw.problem),
                                   TextValue(Joined(flaw.repair))};
    std::array<bool, 3> nulls = {false, false, flaw.repair.empty()};
    Pg([&] {
      tuplestore_putvalues(result->setResult, result->setDesc, values.data(), nulls.data());
    });
  }
}

void Repair::Announce() const {
  for (const Flaw& flaw : flaws_) {
    const std::string repair = Joined(flaw.repair);
    Pg([&] {
      ereport(NOTICE, (errmsg("%s: %s", flaw.object.c_str(), flaw.problem.c_str()),
                       errdetail_internal("Repaired with: %s", repair.c_str())));
    });
  }
}

Oid RegisteredPart(Oid relation, const char* kind, const char* registry, const char* column) {
  Parameters key;
  key.AddOid(OIDOID, relation).AddText(kind);
  const std::string part = std::string("r.") + column;
  const uint64 rows =
      Run("SELECT p.part::oid FROM postbox.parts_of(ARRAY[$1]) p WHERE p.kind = $2 UNION ALL "
          "SELECT c.oid FROM postbox." +
              std::string(registry) +
              " r JOIN pg_class t ON t.oid = r.relation JOIN pg_class c ON c.oid = " + part +
              " WHERE r.relation = $1 AND c.relkind IN ('r', 'p') AND c.relowner = t.relowner "
              "AND NOT EXISTS (SELECT FROM postbox.outbox o WHERE c.oid IN (o.relation, o.counter, "
              "o.parked) AND o.relation <> $1) AND NOT EXISTS (SELECT FROM postbox.inbox i "
              "WHERE c.oid IN (i.relation, i.tombstone) AND i.relation <> $1)",
          key);
  return rows == 0 ? InvalidOid : OidColumn(0, 1);
}

NewRelation FreeRelation(Oid of, const char* suffix) {
  const char* schema =
      Pg([&]() -> const char* { return get_namespace_name(get_rel_namespace(of)); });
  const char* name = Pg([&]() -> const char* {
    return ChooseRelationName(get_rel_name(of), nullptr, suffix, get_rel_namespace(of), false);
  });
  return {schema, name};
}

Oid FindFreePart(Oid of, Oid given, const char* suffix, const char* what, const TableShape& shape) {
  const Oid owner = RelationOwner(of);
  Oid part = given;
  const NewRelation relation{
      Pg([&]() -> const char* { return get_namespace_name(get_rel_namespace(of)); }),
      Pg([&]() -> const char* { return get_rel_name(of); })};
  if (!OidIsValid(part)) part = RelationNamed(relation.Qualified(std::string("_") + suffix));
  if (OidIsValid(part)) {
    CheckFreePart(part, what, owner, shape);
    return part;
  }
  std::vector<std::string> columns;
  for (const ColumnShape& column : shape.columns) columns.push_back(column.name);
  Parameters parameters;
  parameters.AddOid(REGCLASSOID, of).Add(TEXTARRAYOID, TextArrayValue(columns));
  parameters.Add(BOOLOID, BoolGetDatum(shape.options == kByGeneration));
  const uint64 rows =
      Run("SELECT c.oid::regclass::text FROM pg_class c JOIN pg_class o ON o.oid = $1 "
          "AND c.relnamespace = o.relnamespace AND c.relowner = o.relowner "
          "WHERE c.relkind = CASE WHEN $3 THEN 'p'::\"char\" ELSE 'r' END "
          "AND NOT c.relispartition AND c.oid <> o.oid "
          "AND $2 <@ ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid "
          "AND a.attnum > 0 AND NOT a.attisdropped) AND cardinality($2) = (SELECT count(*) FROM "
          "pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) "
          "AND NOT EXISTS (SELECT FROM postbox.outbox r WHERE c.oid IN (r.counter, r.parked)) "
          "AND NOT EXISTS (SELECT FROM postbox.inbox r WHERE c.oid = r.tombstone) ORDER BY 1",
          parameters);
  if (rows == 0) return InvalidOid;
  std::string candidates;
  for (const std::string& name : TextColumns(rows, 1)) {
    candidates += (candidates.empty() ? "" : ", ") + name;
  }
  Throw(ERRCODE_AMBIGUOUS_PARAMETER,
        std::string("the ") + what + " of \"" + RelationName(of) + "\" is not named after it",
        "It may be one of " + candidates + ".",
        "Pass the right table as an argument, or first register the outboxes and inboxes to which "
        "the other tables belong.");
}

}  // namespace postbox
