#include "extension/apply/projection_columns.h"

#include "extension/apply/column_value.h"
#include "extension/apply/consumer_names.h"
#include "extension/base/arguments.h"
#include "extension/base/relation.h"

extern "C" {
#include <access/relation.h>
#include <access/stratnum.h>
#include <catalog/pg_attribute.h>
#include <catalog/pg_collation.h>
#include <catalog/pg_index.h>
#include <catalog/pg_operator.h>
}

namespace postbox {
namespace {

// An attribute of the target, copied out of the relation cache.
struct Attribute {
  std::string name;
  AttrNumber number;
  Oid type;
  int32 typmod;
  Oid collation;
  bool not_null;
  bool has_default;
  bool generated;  // GENERATED ALWAYS, as an expression or as identity
};

struct UniqueIndex {
  Oid index;
  bool primary;
  std::vector<AttrNumber> columns;
  std::vector<Oid> equal;  // operators
};

struct Target {
  std::string name;  // for messages: not quoted
  std::string qualified_name;
  char kind;
  Oid replica_identity;  // index; InvalidOid if there is none
  std::vector<Attribute> attributes;
  std::vector<UniqueIndex> indexes;
  std::set<std::string> checks;

  const Attribute* Find(std::string_view column) const {
    for (const Attribute& attribute : attributes) {
      if (attribute.name == column) return &attribute;
    }
    return nullptr;
  }
  const Attribute& Need(std::string_view column, const char* role) const {
    const Attribute* attribute = Find(column);
    if (attribute == nullptr) {
      Throw(ERRCODE_UNDEFINED_COLUMN,
            "column \"" + std::string(column) + "\" of relation \"" + name + "\" does not exist",
            std::string("It is meant to be ") + role + " of the projection.",
            "Add the column to the table, or name another one.");
    }
    return *attribute;
  }
};

std::string Join(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty()) text += ", ";
    text += part;
  }
  return text;
}

// Only plain indexes that ON CONFLICT can use: valid, immediate, on all rows, on columns.
bool Usable(Form_pg_index index, bool partial, bool expressions) {
  return index->indisunique && index->indisvalid && index->indimmediate && !partial && !expressions;
}

void ReadIndexes(Relation relation, Target* target) {
  List* indexes = Pg([&] { return RelationGetIndexList(relation); });
  for (int i = 0; i < list_length(indexes); ++i) {
    const Oid oid = list_nth_oid(indexes, i);
    Relation index = Pg([&] { return index_open(oid, AccessShareLock); });
    const bool partial = !heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, nullptr);
    const bool expressions = !heap_attisnull(index->rd_indextuple, Anum_pg_index_indexprs, nullptr);
    if (Usable(index->rd_index, partial, expressions)) {
      UniqueIndex unique{oid, index->rd_index->indisprimary, {}, {}};
      for (int column = 0; column < index->rd_index->indnkeyatts; ++column) {
        unique.columns.push_back(index->rd_index->indkey.values[column]);
        unique.equal.push_back(Pg([&] {
          return get_opfamily_member(index->rd_opfamily[column], index->rd_opcintype[column],
                                     index->rd_opcintype[column], BTEqualStrategyNumber);
        }));
      }
      target->indexes.push_back(std::move(unique));
    }
    Pg([&] { index_close(index, AccessShareLock); });
  }
}

[[noreturn]] void ThrowDropped(const ProjectionConfig& config) {
  if (config.id == 0) {
    Throw(ERRCODE_UNDEFINED_TABLE,
          "table with OID " + std::to_string(config.target) + " does not exist");
  }
  Throw(ERRCODE_UNDEFINED_TABLE,
        "the target of projection \"" + config.name + "\" has been dropped",
        config.dropped_target.empty() ? "" : "It was table " + config.dropped_target + ".",
        "If its events are still needed, first create the table and the projection again. Then "
        "remove this projection with postbox.drop_projection(" +
            NameLiteral(config.name) + ").");
}

Target ReadTarget(const ProjectionConfig& config) {
  const Oid oid = config.target;
  Relation relation = nullptr;
  if (OidIsValid(oid)) relation = Pg([&] { return try_relation_open(oid, AccessShareLock); });
  if (relation == nullptr) ThrowDropped(config);
  Target target;
  target.name = RelationGetRelationName(relation);
  target.qualified_name = RelationName(oid);
  target.kind = relation->rd_rel->relkind;
  if (target.kind == RELKIND_RELATION || target.kind == RELKIND_PARTITIONED_TABLE) {
    TupleDesc descriptor = RelationGetDescr(relation);
    for (int i = 0; i < descriptor->natts; ++i) {
      Form_pg_attribute attribute = TupleDescAttr(descriptor, i);
      if (attribute->attisdropped) continue;
      target.attributes.push_back(
          {NameStr(attribute->attname), attribute->attnum, attribute->atttypid,
           attribute->atttypmod, attribute->attcollation, attribute->attnotnull,
           attribute->atthasdef || attribute->attidentity != '\0',
           attribute->attgenerated != '\0' || attribute->attidentity == ATTRIBUTE_IDENTITY_ALWAYS});
    }
    for (int i = 0; descriptor->constr != nullptr && i < descriptor->constr->num_check; ++i) {
      target.checks.insert(descriptor->constr->check[i].ccname);
    }
    ReadIndexes(relation, &target);
    target.replica_identity = Pg([&] { return RelationGetReplicaIndex(relation); });
  }
  Pg([&] { relation_close(relation, AccessShareLock); });
  if (target.attributes.empty()) {
    Throw(ERRCODE_WRONG_OBJECT_TYPE,
          "relation \"" + target.name + "\" cannot be the target of a projection",
          "Only ordinary and partitioned tables can.");
  }
  return target;
}

// The key of a projection: its columns and the unique index on them.
struct Key {
  std::vector<const Attribute*> columns;
  const UniqueIndex* index = nullptr;

  bool Has(const Attribute& attribute) const {
    return std::find(columns.begin(), columns.end(), &attribute) != columns.end();
  }
};

Key PrimaryKey(const Target& target) {
  Key key;
  for (const UniqueIndex& index : target.indexes) {
    if (index.primary) key.index = &index;
  }
  if (key.index == nullptr) {
    Throw(ERRCODE_INVALID_TABLE_DEFINITION, "relation \"" + target.name + "\" has no primary key",
          "The key determines which row an event belongs to.",
          "Add a primary key, or name columns with a unique index: key => ARRAY['...'].");
  }
  for (const AttrNumber number : key.index->columns) {
    for (const Attribute& attribute : target.attributes) {
      if (attribute.number == number) key.columns.push_back(&attribute);
    }
  }
  return key;
}

Key NamedKey(const Target& target, const std::vector<std::string>& names) {
  Key key;
  std::set<AttrNumber> numbers;
  for (const std::string& column : names) {
    key.columns.push_back(&target.Need(column, "a key column"));
    if (!numbers.insert(key.columns.back()->number).second) {
      Throw(ERRCODE_DUPLICATE_COLUMN, "column \"" + column + "\" appears twice in the key");
    }
  }
  for (const UniqueIndex& index : target.indexes) {
    if (std::set<AttrNumber>(index.columns.begin(), index.columns.end()) == numbers &&
        (key.index == nullptr || index.primary)) {
      key.index = &index;
    }
  }
  if (key.index == nullptr) {
    Throw(ERRCODE_INVALID_COLUMN_REFERENCE,
          "relation \"" + target.name + "\" has no unique index on (" + Join(names) + ")",
          "An event must belong to exactly one row.",
          "Run CREATE UNIQUE INDEX on exactly these columns, without a WHERE clause.");
  }
  return key;
}

// COLLATE "C" of a column whose type has another collation, which a parameter of the type has, too:
// the server would not know which of them is meant. Empty if it does.
std::string CollateClause(const Attribute& attribute) {
  const Oid of_type = Pg([&] { return get_typcollation(attribute.type); });
  if (!OidIsValid(attribute.collation) || of_type == attribute.collation ||
      of_type == DEFAULT_COLLATION_OID) {
    return "";
  }
  HeapTuple tuple =
      Pg([&] { return SearchSysCache1(COLLOID, ObjectIdGetDatum(attribute.collation)); });
  if (!HeapTupleIsValid(tuple))
    Throw(ERRCODE_INTERNAL_ERROR, "collation of a column does not exist");
  auto* form = reinterpret_cast<Form_pg_collation>(GETSTRUCT(tuple));
  const std::string name = NameStr(form->collname);
  const Oid schema = form->collnamespace;
  ReleaseSysCache(tuple);
  const char* schema_name = Pg([&]() -> const char* { return get_namespace_name(schema); });
  return "COLLATE " + Quoted(schema_name) + "." + Quoted(name) + " ";
}

// The operator of the index that means equal for this column, e.g. OPERATOR(pg_catalog.=).
std::string EqualOperator(const UniqueIndex& index, const Attribute& attribute) {
  const auto at = std::find(index.columns.begin(), index.columns.end(), attribute.number);
  const Oid equal = index.equal[static_cast<size_t>(at - index.columns.begin())];
  HeapTuple tuple = Pg([&] { return SearchSysCache1(OPEROID, ObjectIdGetDatum(equal)); });
  if (!HeapTupleIsValid(tuple))
    Throw(ERRCODE_INTERNAL_ERROR, "operator of an index does not exist");
  auto* form = reinterpret_cast<Form_pg_operator>(GETSTRUCT(tuple));
  const std::string name = NameStr(form->oprname);
  const Oid schema = form->oprnamespace;
  ReleaseSysCache(tuple);
  const char* schema_name = Pg([&]() -> const char* { return get_namespace_name(schema); });
  return CollateClause(attribute) + "OPERATOR(" + Quoted(schema_name) + "." + name + ")";
}

void CheckColumn(const Target& target, const Attribute& attribute, const ColumnSource& source) {
  if (attribute.generated) {
    Throw(ERRCODE_GENERATED_ALWAYS, "column \"" + attribute.name + "\" of relation \"" +
                                        target.name + "\" is generated and cannot be mapped");
  }
  if (source.event_field && Pg([&] { return IsStructured(attribute.type); })) {
    Throw(ERRCODE_DATATYPE_MISMATCH,
          "column \"" + attribute.name + "\" cannot take $" + EventFieldName(*source.event_field),
          "The column is of an array or composite type, or of a domain over json or jsonb.");
  }
  if (!FormFits(source.form, Pg([&] { return getBaseType(attribute.type); }))) {
    Throw(ERRCODE_DATATYPE_MISMATCH,
          "column \"" + attribute.name + "\" of relation \"" + target.name +
              "\" cannot be read as \"" + FormName(source.form) + "\"",
          "It is of type " +
              std::string(Pg([&]() -> const char* { return format_type_be(attribute.type); })) +
              ".",
          FormsAndTypes());
  }
}

// Which column takes its value from where.
class SourceMap {
 public:
  SourceMap(const Target& target, const ProjectionConfig& config, const Key& key,
            const Attribute& version)
      : key_(key), version_(version), by_name_(!config.columns) {
    if (by_name_) return;
    mapping_ = ParseMapping(*config.columns, config.chosen);
    for (const auto& [column, source] : mapping_) target.Need(column, "a column");
  }

  bool by_name() const { return by_name_; }
  // Nothing if the projection leaves the column alone.
  std::optional<ColumnSource> Find(const Attribute& attribute) const {
    const auto mapped = mapping_.find(attribute.name);
    if (mapped != mapping_.end()) return mapped->second;
    if (&attribute == &version_) return ColumnSource{EventField::kVersion, {}};
    const bool is_key = key_.Has(attribute);
    if (is_key && key_.columns.size() == 1) return ColumnSource{EventField::kAggregateId, {}};
    if (is_key || (by_name_ && !attribute.generated)) {
      return ColumnSource{std::nullopt, {attribute.name}};
    }
    return std::nullopt;
  }

 private:
  const Key& key_;
  const Attribute& version_;
  const bool by_name_;
  std::map<std::string, ColumnSource> mapping_;
};

void CheckKey(const Target& target, const Key& key, const Attribute& version) {
  if (version.type != INT8OID && version.type != INT4OID) {
    Throw(ERRCODE_DATATYPE_MISMATCH,
          "version column \"" + version.name + "\" of relation \"" + target.name +
              "\" is neither bigint nor integer",
          "Versions are integers that increase.");
  }
  if (key.Has(version)) {
    Throw(ERRCODE_INVALID_COLUMN_REFERENCE,
          "version column \"" + version.name + "\" may not be part of the key");
  }
  for (const Attribute* attribute : key.columns) {
    if (Pg([&] { return IsStructured(attribute->type); })) {
      Throw(ERRCODE_FEATURE_NOT_SUPPORTED,
            "key column \"" + attribute->name +
                "\" is of an array or composite type, or of a domain over JSON");
    }
  }
}

// Adds the column if it has a source, and says whether it has one.
bool AddColumn(const Target& target, const SourceMap& sources, const Attribute& attribute,
               ProjectionColumns* resolved) {
  std::optional<ColumnSource> source = sources.Find(attribute);
  if (!source) return false;
  CheckColumn(target, attribute, *source);
  const bool not_null =
      attribute.not_null || target.checks.contains(resolved->marks.RequiredCheck(attribute.name));
  resolved->columns.push_back({attribute.name, attribute.number, attribute.type, attribute.typmod,
                               attribute.collation, not_null, *std::move(source),
                               sources.by_name() && attribute.has_default});
  return true;
}

// Adds the columns that are neither the key nor the version.
void AddOtherColumns(const Target& target, const SourceMap& sources, const Key& key,
                     const Attribute& version, ProjectionColumns* resolved) {
  std::vector<std::string> missing;
  for (const Attribute& attribute : target.attributes) {
    if (&attribute == &version || key.Has(attribute)) continue;
    // In a shadow columns are not found by name: it has those that other projections write, too.
    if (!resolved->marks.empty() && !resolved->marks.columns.contains(attribute.name)) {
      if (attribute.name != kSetColumn && attribute.name != kDeletedColumn) {
        resolved->others.push_back(Quoted(attribute.name));
      }
      continue;
    }
    if (!AddColumn(target, sources, attribute, resolved) && attribute.not_null &&
        !attribute.has_default) {
      missing.push_back("\"" + attribute.name + "\"");
    }
  }
  if (missing.empty()) return;
  Throw(ERRCODE_INVALID_PARAMETER_VALUE,
        "columns of relation \"" + target.name + "\" that may not be null are not mapped",
        "No row could be inserted without " + Join(missing) + ".",
        "Map them, or give them defaults.");
}

// What was written when the projection was made must be there still. Otherwise its values would be
// lost, without a word where columns are found by name.
void RequireWritten(const Target& target, const ProjectionConfig& config) {
  for (const std::string& column : config.writes) {
    if (target.Find(column) != nullptr) continue;
    Throw(ERRCODE_UNDEFINED_COLUMN,
          "column \"" + column + "\" of relation \"" + target.name + "\" does not exist",
          "Projection \"" + config.name + "\" writes it.",
          "Add the column to the table again. If it was renamed or is no longer needed, run SELECT "
          "postbox.alter_projection(" +
              NameLiteral(config.name) + ", columns => ...).");
  }
}

}  // namespace

std::vector<ProjectionConfig> ReadProjections(const std::string& sql, Parameters& key) {
  const uint64 rows = Run(sql, key);
  std::vector<ProjectionConfig> configs(rows);
  for (uint64 row = 0; row < rows; ++row) {
    ProjectionConfig& config = configs[row];
    config.id = Int64Column(row, 1);
    config.event_types = TextArrayColumn(row, 2);
    config.target = OidColumn(row, 3);
    if (!IsNull(row, 4)) config.columns = TextColumn(row, 4);
    config.key = TextArrayColumn(row, 5);
    config.version_column = TextColumn(row, 6);
    config.delete_types = TextArrayColumn(row, 7);
    config.dropped_target = TextColumn(row, 8);
    config.writes = TextArrayColumn(row, 9);
    config.name = TextColumn(row, 10);
    config.marks = ShadowMarks::Of(TextArrayColumn(row, 11));
  }
  return configs;
}

ProjectionColumns ResolveColumns(const ProjectionConfig& config) {
  const Target target = ReadTarget(config);
  ProjectionColumns resolved;
  resolved.target_name = target.qualified_name;
  resolved.marks = config.marks;

  const Key key = config.key.empty() ? PrimaryKey(target) : NamedKey(target, config.key);
  for (const Attribute* attribute : key.columns) {
    resolved.key_operators.push_back(EqualOperator(*key.index, *attribute));
  }
  // With another index as the replica identity, the server compares whole rows (DirtyFind).
  const bool identifies =
      !OidIsValid(target.replica_identity) || target.replica_identity == key.index->index;
  if (key.index->primary && target.kind == RELKIND_RELATION && identifies) {
    resolved.primary_key = key.index->index;
  }
  const Attribute& version = target.Need(config.version_column, "the version column");
  CheckKey(target, key, version);

  const SourceMap sources(target, config, key, version);
  for (const Attribute* attribute : key.columns) {
    AddColumn(target, sources, *attribute, &resolved);
  }
  resolved.key_size = key.columns.size();
  AddColumn(target, sources, version, &resolved);
  if (resolved.version().source.event_field != EventField::kVersion) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE,
          "version column \"" + version.name + "\" can only take $version", "",
          "Leave it out of columns.");
  }
  AddOtherColumns(target, sources, key, version, &resolved);
  RequireWritten(target, config);
  return resolved;
}

TargetSql ProjectionColumns::Sql(bool returns_version) const {
  std::vector<std::string> names;
  for (const ProjectionColumn& column : columns) names.push_back(Quoted(column.name));
  TargetSql sql(target_name, std::move(names), key_operators, returns_version);
  if (marks.empty()) return sql;
  TargetSql::Shadow shadow{marks.touched, marks.begun, {}, others};
  for (const ProjectionColumn& column : columns) {
    const auto mark = marks.columns.find(column.name);
    shadow.marks.push_back(mark == marks.columns.end() ? "" : mark->second);
  }
  sql.SetShadow(std::move(shadow));
  return sql;
}

}  // namespace postbox
