// postbox.adopt_outbox: makes an outbox of an existing table, for example one of Debezium's shape.
//
// The table keeps its columns and its writers: they continue with plain INSERTs, and outbox_emit
// may be used beside them. The fields of an event are looked for under the standard names, under
// the aliases below, or where the caller says; postbox.outbox.columns records where they were
// found. What is missing is added:
//
//   schema_version, attributes, occurred_at   with defaults
//   published_at, publish_attempts,
//   next_retry_at, lock_token, locked_at,
//   last_error                                the state of a row (table_relations.h)
//   seq         the order of publishing, an identity column. The rows that are there get it in the
//               order in which they occurred, those of one aggregate in the order of their versions
//   version     is not added: its place in the outbox (seq) is then the version of an event, which
//               grows within an aggregate and needs no counter
//
// and so are the worker's indexes, a version counter that begins where the rows are, and a trigger
// that wakes the workers after INSERTs. A row counts as published if the table had published_at and
// it is set. All of it happens as the owner of the table, under an ACCESS EXCLUSIVE lock. The table
// is checked before the lock, so that a caller without rights does not wait for it or block others,
// and again after it, since it may have changed meanwhile.
#include "extension/base/arguments.h"
#include "extension/base/relation.h"
#include "extension/base/version.h"
#include "extension/lifecycle/wakeup.h"
#include "extension/registry/log_relations.h"
#include "extension/registry/outbox_parts.h"
#include "extension/registry/outbox_registration.h"
#include "extension/registry/repair.h"
#include "extension/registry/table_relations.h"
#include "extension/shared/outbox_columns.h"
#include "extension/trust/act_as.h"

extern "C" {
#include <commands/trigger.h>
#include <storage/lmgr.h>
}

namespace postbox {
namespace {

struct TableColumn {
  std::string type;
  bool nullable = false;
};
using TableColumns = std::map<std::string, TableColumn>;

// A column that an outbox must have: where it is looked for, and which types it may have.
struct Requirement {
  std::string name;
  std::vector<std::string> aliases;
  std::vector<std::string> types;
  bool not_null = false;
  std::string added_as;  // its definition when it is missing; empty: it has to be there
};

const std::vector<Requirement>& EventColumns() {
  static const auto& columns = *new std::vector<Requirement>{
      {"id", {"event_id"}, {"uuid"}, true, ""},
      {"aggregate_type", {"aggregatetype"}, {"text", "character varying"}, true, ""},
      {"aggregate_id",
       {"aggregateid"},
       {"text", "character varying", "uuid", "bigint", "integer"},
       true,
       ""},
      {"event_type", {"type"}, {"text", "character varying"}, true, ""},
      {"version", {}, {"bigint", "integer"}, true, ""},
      {"schema_version",
       {},
       {"text", "character varying", "integer", "smallint"},
       false,
       "text NOT NULL DEFAULT 'v1'"},
      {"payload", {}, {"bytea", "jsonb", "json", "text", "character varying"}, false, ""},
      {"attributes", {}, {"jsonb", "json"}, false, "jsonb NOT NULL DEFAULT '{}'"},
      {"occurred_at",
       {"created_at"},
       {"timestamp with time zone", "timestamp without time zone"},
       false,
       "timestamptz NOT NULL DEFAULT now()"},
  };
  return columns;
}

const std::vector<Requirement>& StateColumns() {
  static const auto& columns = *new std::vector<Requirement>{
      {"published_at", {}, {"timestamp with time zone"}, false, "timestamptz"},
      {"publish_attempts", {}, {"integer"}, true, "int NOT NULL DEFAULT 0"},
      {"next_retry_at", {}, {"timestamp with time zone"}, false, "timestamptz"},
      {"lock_token", {}, {"text"}, false, "text"},
      {"locked_at", {}, {"timestamp with time zone"}, false, "timestamptz"},
      {"last_error", {}, {"text"}, false, "text"},
  };
  return columns;
}

bool IsState(const Requirement& requirement) {
  return std::any_of(StateColumns().begin(), StateColumns().end(),
                     [&](const Requirement& other) { return other.name == requirement.name; });
}

constexpr char kSeqName[] = "seq";

std::string Listed(const std::vector<std::string>& words, const char* last) {
  std::string list;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) list += i + 1 == words.size() ? last : ", ";
    list += words[i];
  }
  return list;
}

class Adoption {
 public:
  Adoption(Oid relation, const NullableDatum& retention)
      : relation_(relation), retention_(retention) {}

  Oid Run(Datum columns);

 private:
  void CheckOwner() const;
  void CheckTable();
  void ReadColumns();
  void ReadNames(Datum columns);
  // The column that meets the requirement; empty if there is none and it will be added.
  std::string Find(const Requirement& requirement) const;
  void CheckColumn(const Requirement& requirement, const std::string& column) const;
  void CheckUniqueId() const;
  void CheckSeq() const;
  void AddColumns();
  void AddSeq();
  Oid FindOrMakeCounter() const;
  void CountVersions(Oid counter) const;
  void AddIndexes(const std::string& key) const;
  std::string Json() const;

  const Oid relation_;
  const NullableDatum retention_;
  NewRelation table_;
  std::string name_;                          // quoted and qualified
  TableColumns columns_;                      // of the table
  std::map<std::string, std::string> named_;  // standard name -> column, as the caller says
  std::map<std::string, std::string> found_;  // standard name -> column
};

// Why a relation of this relkind cannot be adopted.
const char* KindOf(char relkind) {
  switch (relkind) {
    case RELKIND_PARTITIONED_TABLE:
      return "It is a partitioned table.";
    case RELKIND_VIEW:
      return "It is a view.";
    case RELKIND_MATVIEW:
      return "It is a materialized view.";
    case RELKIND_FOREIGN_TABLE:
      return "It is a foreign table.";
    default:
      return "It is not a table.";
  }
}

void Adoption::CheckOwner() const {
  Pg([&] {
    if (OwnsRelation(relation_, GetUserId())) return;
    aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, get_rel_name(relation_));
  });
}

void Adoption::CheckTable() {
  Parameters key;
  key.AddOid(REGCLASSOID, relation_);
  const uint64 found = postbox::Run(
      "SELECT n.nspname::text, c.relname::text, c.relkind, c.relpersistence, c.relispartition,"
      " EXISTS (SELECT FROM pg_inherits i WHERE c.oid IN (i.inhrelid, i.inhparent)),"
      " EXISTS (SELECT FROM postbox.outbox o WHERE c.oid = o.relation)"
      " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1",
      key);
  if (found == 0) {
    Throw(ERRCODE_UNDEFINED_TABLE,
          "relation with OID " + std::to_string(relation_) + " does not exist");
  }
  table_ = {PrintedColumn(0, 1), PrintedColumn(0, 2)};
  const char kind = CharColumn(0, 3);
  const char persistence = CharColumn(0, 4);
  const bool partition = BoolColumn(0, 5);
  const bool inherits = BoolColumn(0, 6);
  const bool outbox = BoolColumn(0, 7);
  name_ = table_.Qualified();
  if (outbox) {
    Throw(ERRCODE_DUPLICATE_OBJECT, "\"" + name_ + "\" is an outbox already", "",
          "The outboxes of this database are listed in postbox.outbox.");
  }
  if (kind != RELKIND_RELATION || inherits) {
    Throw(ERRCODE_WRONG_OBJECT_TYPE, "\"" + name_ + "\" cannot be an outbox",
          kind != RELKIND_RELATION ? KindOf(kind)
          : partition              ? "It is a partition."
                                   : "It inherits from a table, or a table inherits from it.",
          "Adopt an ordinary table.");
  }
  if (persistence != RELPERSISTENCE_PERMANENT) {
    const bool temporary = persistence == RELPERSISTENCE_TEMP;
    Throw(ERRCODE_INVALID_TABLE_DEFINITION,
          "table \"" + table_.name + "\" may not be " + (temporary ? "temporary" : "unlogged"),
          temporary ? "Other processes must be able to see it." : "A crash empties it.",
          temporary ? "Adopt a permanent table." : "Run ALTER TABLE " + name_ + " SET LOGGED.");
  }
  size_t suffix = std::strlen("_version");
  for (const IndexShape& index : TableIndexShapes("")) {
    suffix = std::max(suffix, index.suffix.size());
  }
  const size_t longest = NAMEDATALEN - 1 - suffix;
  if (table_.name.size() > longest) {
    Throw(ERRCODE_NAME_TOO_LONG, "name \"" + table_.name + "\" is too long",
          "Indexes and a further table are named after it, which leaves " +
              std::to_string(longest) + " bytes.");
  }
}

void Adoption::ReadColumns() {
  Parameters key;
  key.AddOid(REGCLASSOID, relation_);
  const uint64 rows = postbox::Run(
      "SELECT attname::text, format_type(atttypid, NULL), NOT attnotnull FROM pg_attribute"
      " WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped",
      key);
  for (uint64 row = 0; row < rows; ++row) {
    columns_[TextColumn(row, 1)] = {TextColumn(row, 2), BoolColumn(row, 3)};
  }
}

void Adoption::ReadNames(Datum columns) {
  Parameters argument;
  argument.Add(JSONBOID, columns);
  postbox::Run("SELECT jsonb_typeof($1) = 'object'", argument);
  if (!BoolColumn(0, 1)) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, "columns must be a JSON object", "",
          "For example '{\"aggregate_id\": \"entity_id\"}'.");
  }
  const uint64 rows = postbox::Run(
      "SELECT key, CASE WHEN jsonb_typeof(value) = 'string' THEN value #>> '{}' END"
      " FROM jsonb_each($1) ORDER BY key",
      argument);
  for (uint64 row = 0; row < rows; ++row) {
    const std::string key = TextColumn(row, 1);
    const auto known = std::find_if(EventColumns().begin(), EventColumns().end(),
                                    [&](const Requirement& other) { return other.name == key; });
    if (known == EventColumns().end()) {
      std::vector<std::string> all;
      for (const Requirement& requirement : EventColumns()) all.push_back(requirement.name);
      Throw(ERRCODE_INVALID_PARAMETER_VALUE, "unknown key in columns: \"" + key + "\"", "",
            "The keys of columns are " + Listed(all, " and ") + ".");
    }
    if (IsNull(row, 2)) {
      Throw(ERRCODE_INVALID_PARAMETER_VALUE,
            "the value of \"" + key + "\" in columns must be the name of a column");
    }
    named_[key] = TextColumn(row, 2);
  }
}

bool Takes(const Requirement& requirement, const TableColumn& column) {
  return std::find(requirement.types.begin(), requirement.types.end(), column.type) !=
         requirement.types.end();
}

std::string Adoption::Find(const Requirement& requirement) const {
  const auto named = named_.find(requirement.name);
  if (named != named_.end()) {
    const bool added = requirement.name == "version" && named->second == kSeqName;
    if (added || columns_.contains(named->second)) return named->second;
    Throw(ERRCODE_UNDEFINED_COLUMN,
          "column \"" + named->second + "\" of table \"" + name_ + "\" does not exist");
  }
  const auto usable = [&](const std::string& name) {
    const auto column = columns_.find(name);
    return column != columns_.end() && Takes(requirement, column->second);
  };
  if (usable(requirement.name)) return requirement.name;
  for (const std::string& alias : requirement.aliases) {
    if (usable(alias)) return alias;
  }
  if (columns_.contains(requirement.name))
    return requirement.name;  // CheckColumn says what is wrong
  if (requirement.name == "version") return kSeqName;
  if (!requirement.added_as.empty()) return "";
  Throw(ERRCODE_UNDEFINED_COLUMN, "table \"" + name_ + "\" has no column for " + requirement.name,
        "",
        "Name it: postbox.adopt_outbox('" + name_ + "', '{\"" + requirement.name +
            "\": \"its column\"}').");
}

void Adoption::CheckColumn(const Requirement& requirement, const std::string& name) const {
  const TableColumn& column = columns_.at(name);
  if (!Takes(requirement, column)) {
    Throw(ERRCODE_DATATYPE_MISMATCH,
          "column \"" + name + "\" of table \"" + name_ + "\" has type " + column.type,
          requirement.name + " must be " + Listed(requirement.types, " or ") + ".",
          "Change its type, " +
              (IsState(requirement) ? "" : "name another column for " + requirement.name + ", ") +
              "or rename it.");
  }
  if (requirement.not_null && column.nullable) {
    Throw(ERRCODE_INVALID_TABLE_DEFINITION,
          "column \"" + name + "\" of table \"" + name_ + "\" may be null",
          "Every event has " + requirement.name + ".",
          "Run ALTER TABLE " + name_ + " ALTER COLUMN " + Quoted(name) + " SET NOT NULL.");
  }
}

void Adoption::CheckUniqueId() const {
  const std::string& id = found_.at("id");
  Parameters parameters;
  parameters.AddOid(REGCLASSOID, relation_).AddText(id);
  const uint64 found = postbox::Run(
      "SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = "
      "i.indkey[0]"
      " WHERE i.indrelid = $1 AND a.attname = $2 AND i.indisunique AND i.indisvalid"
      " AND i.indnkeyatts = 1 AND i.indpred IS NULL",
      parameters);
  if (found > 0) return;
  Throw(ERRCODE_INVALID_TABLE_DEFINITION,
        "column \"" + id + "\" of table \"" + name_ + "\" has no unique index",
        "Events are looked up by id.",
        "Run CREATE UNIQUE INDEX ON " + name_ + " (" + Quoted(id) + ").");
}

// A column seq that was there before counts rows as ours would.
void Adoption::CheckSeq() const {
  Parameters key;
  key.AddOid(REGCLASSOID, relation_);
  const uint64 found = postbox::Run(
      "SELECT FROM pg_attribute a JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass"
      " AND d.refobjid = a.attrelid AND d.refobjsubid = a.attnum AND d.classid = "
      "'pg_class'::regclass"
      " AND d.deptype IN ('a', 'i') JOIN pg_sequence s ON s.seqrelid = d.objid"
      " WHERE a.attrelid = $1 AND a.attname = 'seq' AND NOT a.attisdropped AND a.attnotnull"
      " AND a.atttypid = 'bigint'::regtype AND a.atthasdef IS DISTINCT FROM (a.attidentity = 'd')"
      " AND a.attidentity IN ('', 'd') AND a.attgenerated = '' AND s.seqcache = 1"
      " AND s.seqincrement > 0",
      key);
  if (found > 0) return;
  Throw(ERRCODE_INVALID_TABLE_DEFINITION,
        "column \"seq\" of table \"" + name_ + "\" is not a suitable identity column",
        "Events are published in the order of seq, which must be a bigint that is NOT NULL and "
        "GENERATED BY DEFAULT AS IDENTITY (CACHE 1).",
        "Rename it; Postbox adds its own column.");
}

void Adoption::AddColumns() {
  std::string added;
  const auto add = [&](const Requirement& requirement) {
    added += (added.empty() ? " ADD COLUMN " : ", ADD COLUMN ") + Quoted(requirement.name) + " " +
             requirement.added_as;
  };
  for (const Requirement& requirement : EventColumns()) {
    std::string& column = found_[requirement.name];
    if (!column.empty()) continue;
    add(requirement);
    column = requirement.name;
  }
  for (const Requirement& requirement : StateColumns()) {
    if (!columns_.contains(requirement.name)) add(requirement);
  }
  if (!added.empty()) postbox::Run("ALTER TABLE " + name_ + added);
  // A lease of another publisher ends at its time-out; without locked_at it would never end.
  postbox::Run("UPDATE " + name_ +
               " SET locked_at = now() WHERE lock_token IS NOT NULL AND "
               "locked_at IS NULL");
}

void Adoption::AddSeq() {
  if (columns_.contains(kSeqName)) return;
  const auto column = [&](const char* name) { return Quoted(found_.at(name)); };
  postbox::Run("ALTER TABLE " + name_ + " ADD COLUMN seq bigint");
  // Events of the same time, or of none, are ordered by their place in the table.
  std::string at = column("occurred_at");
  std::string version = "0";
  if (found_.at("version") != kSeqName) {
    // Not before any earlier version of its aggregate.
    version = column("version");
    at = "max(" + at + ") OVER (PARTITION BY " + column("aggregate_type") + ", " +
         column("aggregate_id") + " ORDER BY " + version + ", ctid ROWS UNBOUNDED PRECEDING)";
  }
  postbox::Run("UPDATE " + name_ +
               " t SET seq = o.seq FROM (SELECT e.id, row_number() OVER "
               "(ORDER BY e.at, e.version, e.place) AS seq FROM (SELECT " +
               column("id") + " AS id, ctid AS place, " + version + " AS version, " + at +
               " AS at FROM " + name_ + ") e) o WHERE t." + column("id") + " = o.id");
  postbox::Run("SELECT coalesce(max(seq), 0) + 1 FROM " + name_);
  const std::string next = PrintedColumn(0, 1);
  postbox::Run("ALTER TABLE " + name_ +
               " ALTER COLUMN seq SET NOT NULL, ALTER COLUMN seq ADD "
               "GENERATED BY DEFAULT AS IDENTITY (START WITH " +
               next + " CACHE 1)");
  postbox::Run("COMMENT ON COLUMN " + name_ + ".seq IS 'The order of publishing (postbox outbox)'");
}

// A counter that is there already, from before a DROP EXTENSION or from a dump, goes on.
Oid Adoption::FindOrMakeCounter() const {
  const std::string name = table_.Qualified("_version");
  if (const Oid counter = RelationNamed(name); OidIsValid(counter)) {
    CheckFreePart(counter, "version counter", RelationOwner(relation_), CounterShape());
    return counter;
  }
  CreateVersionCounter(table_);
  return RelationNamed(name);
}

void Adoption::CountVersions(Oid counter) const {
  if (found_.at("version") == kSeqName) return;
  const auto column = [&](const char* name) { return Quoted(found_.at(name)); };
  postbox::Run("INSERT INTO " + RelationName(counter) +
               " AS c (aggregate_type, aggregate_id, version) SELECT " + column("aggregate_type") +
               ", " + column("aggregate_id") + "::text, max(" + column("version") + ") FROM " +
               name_ +
               " GROUP BY 1, 2 ON CONFLICT (aggregate_type, aggregate_id) DO UPDATE SET version = "
               "greatest(c.version, EXCLUDED.version)");
}

void Adoption::AddIndexes(const std::string& key) const {
  const Oid schema = Pg([&] { return get_rel_namespace(relation_); });
  for (const IndexShape& index : TableIndexShapes(key)) {
    if (!FindIndexes(relation_, {index}).empty()) continue;
    postbox::Run(CreateIndexStatement(index, name_, schema, table_.name));
  }
}

// The columns whose names differ from the standard ones.
std::string Adoption::Json() const {
  return Pg([&]() -> const char* {
    StringInfoData json;
    initStringInfo(&json);
    appendStringInfoChar(&json, '{');
    for (const auto& [standard, column] : found_) {
      if (standard == column) continue;
      if (json.len > 1) appendStringInfoString(&json, ", ");
      escape_json(&json, standard.c_str());
      appendStringInfoString(&json, ": ");
      escape_json(&json, column.c_str());
    }
    appendStringInfoChar(&json, '}');
    return json.data;
  });
}

Oid Adoption::Run(Datum columns) {
  SpiConnection connection;
  FixedSearchPath search_path;
  CheckTable();
  CheckOwner();
  Pg([&] { LockRelationOid(relation_, AccessExclusiveLock); });
  CheckTable();
  CheckOwner();
  ReadColumns();
  ReadNames(columns);
  std::map<std::string, std::string> used{{kSeqName, kSeqName}};  // column -> its role
  for (const Requirement& requirement : StateColumns()) used[requirement.name] = requirement.name;
  for (const Requirement& requirement : EventColumns()) {
    const std::string column = Find(requirement);
    found_[requirement.name] = column;
    if (column.empty() || (requirement.name == "version" && column == kSeqName)) continue;
    CheckColumn(requirement, column);
    if (const auto [other, first] = used.emplace(column, requirement.name); !first) {
      Throw(ERRCODE_INVALID_PARAMETER_VALUE, "column \"" + column + "\" cannot be both " +
                                                 other->second + " and " + requirement.name);
    }
  }
  for (const Requirement& requirement : StateColumns()) {
    if (columns_.contains(requirement.name)) CheckColumn(requirement, requirement.name);
  }
  CheckUniqueId();
  if (columns_.contains(kSeqName)) CheckSeq();

  const Oid owner = RelationOwner(relation_);
  const ActAs rights(owner, owner == GetUserId() ? Trust::kTrusted : Trust::kRestricted);
  AddColumns();
  AddSeq();
  const Oid counter = FindOrMakeCounter();
  CountVersions(counter);
  OutboxColumn key{Quoted(found_.at("aggregate_id")), columns_.at(found_.at("aggregate_id")).type};
  OutboxColumns expressions;
  expressions.aggregate_id = key;
  AddIndexes(expressions.AggregateId());
  postbox::Run(WakeTriggerStatement(name_));
  postbox::Run(TriggersStatement(name_, "table"));
  RegisterOutbox({.relation = relation_,
                  .counter = counter,
                  .kind = "table",
                  .retention = retention_,
                  .adopted = true,
                  .columns = Json()});
  return relation_;
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(adopt_outbox) {
  return postbox::Guarded([&] {
    const Oid relation = postbox::OidArgument(fcinfo, 0, "relation");
    const Datum columns = postbox::Argument(fcinfo, 1, "columns");
    postbox::CheckRetention(fcinfo->args[2]);
    return ObjectIdGetDatum(postbox::Adoption(relation, fcinfo->args[2]).Run(columns));
  });
}

// The trigger of adopted tables.
POSTBOX_FUNCTION(event_inserted) {
  return postbox::Guarded([&] {
    if (!CALLED_AS_TRIGGER(fcinfo)) {
      postbox::Throw(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED,
                     "event_inserted() is a trigger function");
    }
    const Relation relation = reinterpret_cast<TriggerData*>(fcinfo->context)->tg_relation;
    if (relation->rd_rel->relispartition) {
      postbox::RequestPublishersAtCommit();
    } else {
      postbox::RequestPublishersAtCommit(RelationGetRelid(relation));
    }
    return Datum{0};
  });
}
