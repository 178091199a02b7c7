// postbox.outbox_problem(outbox): what is wrong with the tables of an outbox, and the repair; and
// postbox.log_sequence(outbox).
//
// Judged by the catalogs, so it raises no error whatever the owner of the outbox has done, and
// waits for no lock. Each look at the status asks for each publication.
#include "extension/base/arguments.h"
#include "extension/base/catalog.h"
#include "extension/base/statement.h"
#include "extension/registry/log_relations.h"
#include "extension/shared/problem.h"
#include "extension/trust/act_as.h"

extern "C" {
#include <catalog/indexing.h>
#include <catalog/pg_depend.h>
#include <catalog/pg_index.h>
#include <catalog/pg_sequence.h>
#include <executor/executor.h>
}

namespace postbox {
namespace {

// A row of postbox.outbox.
struct Registered {
  Oid relation = InvalidOid;
  Oid counter = InvalidOid;
  Oid parked = InvalidOid;
  bool is_log = false;
  bool is_table = false;
  bool adopted = false;
  Datum columns = 0;  // jsonb; 0: none
};

struct ExpectedColumn {
  const char* name;
  Oid type;
  const char* type_name;
};

// Those of an event, the first five of which any outbox has. They may have other types in a table
// outbox.
constexpr ExpectedColumn kEvent[] = {
    {"id", UUIDOID, "uuid"},
    {"aggregate_type", TEXTOID, "text"},
    {"aggregate_id", TEXTOID, "text"},
    {"event_type", TEXTOID, "text"},
    {"payload", BYTEAOID, "bytea"},
    {"version", INT8OID, "bigint"},
    {"schema_version", TEXTOID, "text"},
    {"attributes", JSONBOID, "jsonb"},
    {"occurred_at", TIMESTAMPTZOID, "timestamp with time zone"},
};
constexpr int kNeeded = 5;
constexpr ExpectedColumn kSeqColumn = {"seq", INT8OID, "bigint"};
constexpr ExpectedColumn kOfLog[] = {{"txid", XID8OID, "xid8"}, {"origin", INT4OID, "integer"}};
constexpr ExpectedColumn kAttempts[] = {
    {"publish_attempts", INT4OID, "integer"},
    {"next_retry_at", TIMESTAMPTZOID, "timestamp with time zone"},
    {"last_error", TEXTOID, "text"},
};
constexpr ExpectedColumn kOfTable[] = {
    {"published_at", TIMESTAMPTZOID, "timestamp with time zone"},
    {"lock_token", TEXTOID, "text"},
    {"locked_at", TIMESTAMPTZOID, "timestamp with time zone"},
};
constexpr ExpectedColumn kOfParked[] = {{"publication", TEXTOID, "text"},
                                        {"unreadable", BOOLOID, "boolean"}};

// What follows is for inside Pg(), except the SQL functions.

// The name that a column of an event has in the table.
const char* NameInTable(const Registered& outbox, const char* standard) {
  if (outbox.columns == 0 || JB_ROOT_COUNT(DatumGetJsonbP(outbox.columns)) == 0) return standard;
  LOCAL_FCINFO(call, 2);
  InitFunctionCallInfoData(*call, nullptr, 2, InvalidOid, nullptr, nullptr);
  call->args[0] = {outbox.columns, false};
  call->args[1] = {CStringGetTextDatum(standard), false};
  const Datum name = jsonb_object_field_text(call);
  return call->isnull ? standard : TextDatumGetCString(name);
}

class Check {
 public:
  explicit Check(const Registered& outbox) : outbox_(outbox) {}

  const FoundProblem& LookAtTables() {
    if (!OidIsValid(outbox_.relation)) return found_;
    there_ = WithRelation(outbox_.relation,
                          [&](const FormData_pg_class& form) { owner_ = form.relowner; });
    if (there_) {
      name_ = QualifiedName(outbox_.relation);
      LookAtColumns();
    } else {
      found_.Add({1, psprintf("the relation with OID %u was dropped", outbox_.relation),
                  "relation_dropped", psprintf("%u", outbox_.relation),
                  "drop the outbox with postbox.drop_outbox"});
    }
    LookAtParkedColumns();
    if (there_) {
      LookAtSequences();
      LookAtIndexes();
      LookAtStamps();
    }
    return found_;
  }

  // Whether the parts of the outbox are there and belong to its owner. postbox.parts_problem says
  // what is wrong, and what is allowed beyond that.
  bool HasItsParts() const {
    if (!there_) return true;  // whose are they?
    if (!IsPart(outbox_.counter, true)) return false;
    if ((outbox_.is_log || OidIsValid(outbox_.parked)) && !IsPart(outbox_.parked, true)) {
      return false;
    }
    ListCell* cell;
    foreach (cell, PartitionsOf(outbox_.relation)) {
      if (!IsPart(lfirst_oid(cell), false)) return false;
    }
    return true;
  }

 private:
  bool IsPart(Oid part, bool plain) const {
    bool is = false;
    WithRelation(part, [&](const FormData_pg_class& form) {
      is = form.relowner == owner_ && (!plain || form.relkind == RELKIND_RELATION);
    });
    return is;
  }

  void LookAtColumns() {
    const int count = outbox_.adopted ? kNeeded : static_cast<int>(lengthof(kEvent));
    for (int i = 0; i < count; ++i) {
      Expect(outbox_.relation, NameInTable(outbox_, kEvent[i].name), kEvent[i], outbox_.is_log);
    }
    Expect(outbox_.relation, kSeqColumn);
    if (outbox_.is_log) {
      for (const ExpectedColumn& column : kOfLog) Expect(outbox_.relation, column);
    }
    if (outbox_.is_table) {
      for (const ExpectedColumn& column : kOfTable) Expect(outbox_.relation, column);
      for (const ExpectedColumn& column : kAttempts) Expect(outbox_.relation, column);
    }
  }

  void LookAtParkedColumns() {
    if (!OidIsValid(outbox_.parked) ||
        !SearchSysCacheExists1(RELOID, ObjectIdGetDatum(outbox_.parked))) {
      return;
    }
    for (const ExpectedColumn& column : kEvent) Expect(outbox_.parked, column);
    for (const ExpectedColumn& column : kAttempts) Expect(outbox_.parked, column);
    for (const ExpectedColumn& column : kOfParked) Expect(outbox_.parked, column);
    Expect(outbox_.parked, kSeqColumn);
  }

  void Expect(Oid relation, const ExpectedColumn& column) {
    Expect(relation, column.name, column, true);
  }

  void Expect(Oid relation, const char* name, const ExpectedColumn& column, bool typed) {
    HeapTuple tuple =
        std::strlen(name) < NAMEDATALEN ? SearchSysCacheAttName(relation, name) : nullptr;
    Oid type = InvalidOid;
    if (HeapTupleIsValid(tuple)) {
      const auto* form = reinterpret_cast<Form_pg_attribute>(GETSTRUCT(tuple));
      if (form->attnum > 0) type = form->atttypid;
      ReleaseSysCache(tuple);
    }
    if (!OidIsValid(type)) {
      found_.Add({2, psprintf("column \"%s\" of %s does not exist", name, QualifiedName(relation)),
                  "column_missing", QualifiedName(relation), "rename it back or add it again"});
    } else if (typed && type != column.type && (column.type != TEXTOID || type != VARCHAROID)) {
      found_.Add(
          {3,
           psprintf("column \"%s\" of %s has type %s instead of %s", name, QualifiedName(relation),
                    format_type_extended(type, -1, FORMAT_TYPE_ALLOW_INVALID), column.type_name),
           "column_type", QualifiedName(relation), "change its type back"});
    }
  }

  void LookAtSequences() {
    bool has_sequence = false;
    ForEachCatalogRow(DependRelationId, DependReferenceIndexId,
                      {{Anum_pg_depend_refclassid, RelationRelationId},
                       {Anum_pg_depend_refobjid, outbox_.relation}},
                      [&](HeapTuple tuple) {
                        const auto* row = reinterpret_cast<Form_pg_depend>(GETSTRUCT(tuple));
                        if (row->classid != RelationRelationId || row->refobjsubid <= 0) return;
                        HeapTuple sequence =
                            SearchSysCache1(SEQRELID, ObjectIdGetDatum(row->objid));
                        if (!HeapTupleIsValid(sequence)) return;
                        has_sequence = true;
                        LookAtSequence(*reinterpret_cast<Form_pg_sequence>(GETSTRUCT(sequence)),
                                       static_cast<AttrNumber>(row->refobjsubid));
                        ReleaseSysCache(sequence);
                      });
    if (!outbox_.is_log || has_sequence) return;
    found_.Add({4, psprintf("outbox %s has no sequence", name_), "sequence_missing", name_,
                psprintf("make its sequence OWNED BY its column seq again, or %s", Repair())});
  }

  void LookAtSequence(const FormData_pg_sequence& sequence, AttrNumber column) {
    if (sequence.seqcache == 1 && sequence.seqincrement == 1 && !sequence.seqcycle) return;
    // An adopted table may have other sequences.
    if (outbox_.adopted && get_attnum(outbox_.relation, "seq") != column) return;
    const char* name = QualifiedName(sequence.seqrelid);
    found_.Add({5,
                psprintf("sequence %s is not CACHE 1 INCREMENT 1 NO CYCLE, on which the order of "
                         "events depends",
                         name),
                "sequence_options", name,
                psprintf("run ALTER SEQUENCE %s CACHE 1 INCREMENT 1 NO CYCLE", name)});
  }

  void LookAtIndexes() {
    if (!outbox_.is_log) return;
    const AttrNumber origin = get_attnum(outbox_.relation, "origin");
    bool found = false;
    ForEachCatalogRow(IndexRelationId, IndexIndrelidIndexId,
                      {{Anum_pg_index_indrelid, outbox_.relation}}, [&](HeapTuple tuple) {
                        const auto* index = reinterpret_cast<Form_pg_index>(GETSTRUCT(tuple));
                        found |= index->indisvalid && origin != InvalidAttrNumber &&
                                 index->indkey.values[0] == origin;
                      });
    if (found) return;
    found_.Add({6,
                psprintf("outbox %s has no valid index on (origin, seq): its restore is not "
                         "complete, or the index was dropped",
                         name_),
                "index_missing", name_,
                psprintf("if no restore is running, run CREATE INDEX ON %s (origin, seq)", name_)});
  }

  void LookAtStamps() {
    if (!outbox_.is_log) return;
    const Oid partition = UnstampedPartition(outbox_.relation);
    if (!OidIsValid(partition)) return;
    found_.Add({7,
                psprintf("the trigger postbox_stamp of %s, which assigns txid and seq to inserted "
                         "rows, was dropped or disabled",
                         QualifiedName(partition)),
                "trigger_missing", QualifiedName(partition), Repair()});
  }

  const char* Repair() const {
    return psprintf("run SELECT * FROM postbox.repair_outbox(%s, dry_run => false)",
                    quote_literal_cstr(name_));
  }

  Registered outbox_;
  bool there_ = false;
  Oid owner_ = InvalidOid;
  const char* name_ = nullptr;
  FoundProblem found_;
};

Registered ReadRegistered(HeapTupleHeader row) {
  Registered outbox;
  const auto oid = [&](const char* name) {
    bool null = false;
    const Datum value = GetAttributeByName(row, name, &null);
    return null ? InvalidOid : DatumGetObjectId(value);
  };
  outbox.relation = oid("relation");
  outbox.counter = oid("counter");
  outbox.parked = oid("parked");
  bool null = false;
  const Datum kind = GetAttributeByName(row, "kind", &null);
  const char* name = null ? "" : TextDatumGetCString(kind);
  outbox.is_log = std::strcmp(name, "log") == 0;
  outbox.is_table = std::strcmp(name, "table") == 0;
  const Datum adopted = GetAttributeByName(row, "adopted", &null);
  outbox.adopted = !null && DatumGetBool(adopted);
  const Datum columns = GetAttributeByName(row, "columns", &null);
  outbox.columns = null ? Datum{0} : columns;
  return outbox;
}

// Not inside Pg().
std::optional<Problem> PartsProblem(Oid relation) {
  static Statement& find =
      *new Statement("SELECT p.* FROM postbox.parts_problem($1) p", {REGCLASSOID});
  const SpiConnection connection;
  const FixedSearchPath search_path;
  find.RunReadOnly({ObjectIdGetDatum(relation)});
  return ProblemRow();
}

// The sequence that the first of its columns with one owns, whatever the column is called.
Oid SequenceOf(Oid relation) {
  Oid first = InvalidOid;
  int32 its_column = 0;
  ForEachCatalogRow(
      DependRelationId, DependReferenceIndexId,
      {{Anum_pg_depend_refclassid, RelationRelationId}, {Anum_pg_depend_refobjid, relation}},
      [&](HeapTuple tuple) {
        const auto* row = reinterpret_cast<Form_pg_depend>(GETSTRUCT(tuple));
        if (row->classid != RelationRelationId || row->refobjsubid <= 0) return;
        if (get_rel_relkind(row->objid) != RELKIND_SEQUENCE) return;
        if (OidIsValid(first) &&
            std::pair(its_column, first) <= std::pair(row->refobjsubid, row->objid)) {
          return;
        }
        first = row->objid;
        its_column = row->refobjsubid;
      });
  return first;
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(outbox_problem) {
  using namespace postbox;
  return Guarded([&]() -> Datum {
    fcinfo->isnull = true;
    if (!HasArgument(fcinfo, 0)) return Datum{0};
    const Datum row = fcinfo->args[0].value;
    const FixedSearchPath search_path;  // names are qualified by it
    struct Found {
      FoundProblem first;
      bool has_its_parts;
      Oid relation;
    };
    const Found found = Pg([&]() -> Found {
      const Registered outbox = ReadRegistered(DatumGetHeapTupleHeader(row));
      Check check(outbox);
      const FoundProblem& first = check.LookAtTables();
      return {first, check.HasItsParts(), outbox.relation};
    });
    std::optional<Problem> problem;
    if (!found.has_its_parts) problem = PartsProblem(found.relation);
    if (const FoundProblem& first = found.first; !problem && first.text != nullptr) {
      problem = {first.code, "error", first.subject, first.text, first.remedy};
    }
    return ProblemResult(fcinfo, problem);
  });
}

POSTBOX_FUNCTION(log_sequence) {
  using namespace postbox;
  return Guarded([&]() -> Datum {
    const Oid sequence =
        HasArgument(fcinfo, 0)
            ? Pg([&] { return SequenceOf(DatumGetObjectId(fcinfo->args[0].value)); })
            : InvalidOid;
    fcinfo->isnull = !OidIsValid(sequence);
    return ObjectIdGetDatum(sequence);
  });
}
