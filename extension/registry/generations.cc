#include "extension/registry/generations.h"

#include "extension/base/arguments.h"
#include "extension/base/catalog.h"
#include "extension/base/relation.h"

extern "C" {
#include <catalog/pg_class.h>
#include <nodes/parsenodes.h>
}

namespace postbox {
namespace {

// Inside Pg(). -1 if it is no partition for one value of a smallint.
int GenerationOfPartition(Oid partition) {
  HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(partition));
  if (!HeapTupleIsValid(tuple)) return -1;
  bool null = true;
  const Datum bound = SysCacheGetAttr(RELOID, tuple, Anum_pg_class_relpartbound, &null);
  const auto* spec =
      null ? nullptr : static_cast<PartitionBoundSpec*>(stringToNode(TextDatumGetCString(bound)));
  ReleaseSysCache(tuple);
  if (spec == nullptr || list_length(spec->listdatums) != 1) return -1;
  const auto* value = static_cast<const Const*>(linitial(spec->listdatums));
  if (!IsA(value, Const) || value->consttype != INT2OID || value->constisnull) return -1;
  return DatumGetInt16(value->constvalue);
}

std::string Literal(const std::string& text) {
  return Pg([&]() -> const char* { return quote_literal_cstr(text.c_str()); });
}

}  // namespace

std::vector<Oid> GenerationPartitions(Oid relation, int count) {
  std::vector<Oid> partitions(static_cast<size_t>(count), InvalidOid);
  Pg([&] {
    ListCell* cell;
    foreach (cell, ChildrenOf(relation)) {
      const int generation = GenerationOfPartition(lfirst_oid(cell));
      if (generation < 0 || generation >= count) continue;
      partitions[static_cast<size_t>(generation)] = lfirst_oid(cell);
    }
  });
  return partitions;
}

std::string AddPartitionsStatement(const std::string& table, int count) {
  return "SELECT postbox.add_partitions(" + Literal(table) + ", " + std::to_string(count) + ")";
}

std::vector<Flaw> FindMissingPartitions(Oid relation, int count, const std::string& loss,
                                        const std::string& repair) {
  const std::vector<Oid> partitions = GenerationPartitions(relation, count);
  std::vector<Flaw> flaws;
  std::string missing;
  for (size_t generation = 0; generation < partitions.size(); ++generation) {
    const Oid partition = partitions[generation];
    if (!OidIsValid(partition)) {
      missing += (missing.empty() ? "" : ", ") + std::to_string(generation);
    } else if (Pg([&] { return get_rel_relkind(partition); }) != RELKIND_RELATION) {
      flaws.push_back({RelationName(partition), "not an ordinary table", {}});
    }
  }
  if (!missing.empty()) {
    flaws.push_back(
        {RelationName(relation), "no partition for generation " + missing + ": " + loss, {repair}});
  }
  return flaws;
}

std::string WhyUnfitPartition(Oid relation) {
  Parameters key;
  key.AddOid(REGCLASSOID, relation);
  if (Run("SELECT c.oid::regclass::text, c.relowner = o.relowner, "
          "pg_get_userbyid(c.relowner)::text "
          "FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_class o ON o.oid = "
          "i.inhparent WHERE i.inhparent = $1 AND NOT (c.relkind = 'r' AND c.relpersistence = 'p' "
          "AND c.relowner = o.relowner) ORDER BY 1 LIMIT 1",
          key) == 0) {
    return "";
  }
  return "Its partition " + TextColumn(0, 1) +
         (BoolColumn(0, 2) ? " is not an ordinary, logged table."
                           : " belongs to another role, \"" + TextColumn(0, 3) + "\".");
}

}  // namespace postbox

POSTBOX_FUNCTION(partition_generation) {
  using namespace postbox;
  return Guarded([&] {
    const Oid partition = PG_GETARG_OID(0);
    const int generation = Pg([&] { return GenerationOfPartition(partition); });
    if (generation < 0) {
      fcinfo->isnull = true;
      return Datum{0};
    }
    return Int16GetDatum(static_cast<int16>(generation));
  });
}
