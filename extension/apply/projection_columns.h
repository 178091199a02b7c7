// What a projection writes where: the row of postbox.projection resolved against the target table
// as it is now.
//
// The same resolution checks a projection when it is created and prepares it when it is used, so
// what create_projection accepts works, and what a later ALTER TABLE broke is reported in the same
// words.
//
// `columns` says where the values come from (column_source.h). Without it, every column takes the
// JSON field of its own name. In both cases the version column takes $version, and a single key
// column that is not mapped takes $aggregate_id. What was written when the projection was made is
// kept with it (`writes`): a target that lacks one of these columns is broken. Columns that the
// target has got since are written as well, if values are found by name.
#ifndef POSTBOX_EXTENSION_APPLY_PROJECTION_COLUMNS_H_
#define POSTBOX_EXTENSION_APPLY_PROJECTION_COLUMNS_H_

#include "extension/apply/column_source.h"
#include "extension/apply/target_sql.h"
#include "extension/base/spi.h"

namespace postbox {

// A row of postbox.projection, or the arguments of create_projection.
struct ProjectionConfig {
  int64 id = 0;  // 0: it is being created
  std::string name;
  std::vector<std::string> event_types;
  std::vector<std::string> delete_types;
  Oid target = InvalidOid;
  std::string dropped_target;          // its name, if it has been dropped
  std::optional<std::string> columns;  // JSON; none: by name
  std::vector<std::string> key;        // empty: the primary key
  std::string version_column;
  std::vector<std::string> writes;  // what it wrote when it was made; empty: not known
  bool chosen = false;              // `columns` are given in this call, so that they are checked
  ShadowMarks marks;                // of the shadow of a rebuild; otherwise empty
};

struct ProjectionColumn {
  std::string name;
  AttrNumber number;
  Oid type;
  int32 typmod;
  Oid collation;
  bool not_null;
  ColumnSource source;
  bool by_chance;  // found by its name, and it has a default: it need not be a field of the events
};

// The columns are in this order: the key, the version column, all others.
struct ProjectionColumns {
  std::string target_name;  // quoted, qualified
  std::vector<ProjectionColumn> columns;
  size_t key_size = 0;
  // For each key column the operator of the index that means equal, e.g. OPERATOR(pg_catalog.=).
  std::vector<std::string> key_operators;
  // The primary key index, if the key is the primary key of a plain table; see target_rows.h.
  Oid primary_key = InvalidOid;
  // Of a shadow.
  ShadowMarks marks;
  std::vector<std::string> others;  // the columns that other projections write

  const ProjectionColumn& version() const { return columns[key_size]; }
  // The names of the columns; and of those of the key.
  std::vector<std::string> Names() const { return FirstNames(columns.size()); }
  std::vector<std::string> KeyNames() const { return FirstNames(key_size); }
  TargetSql Sql(bool returns_version) const;

 private:
  std::vector<std::string> FirstNames(size_t count) const {
    std::vector<std::string> names;
    for (size_t i = 0; i < count; ++i) names.push_back(columns[i].name);
    return names;
  }
};

// The columns of a query of postbox.projection for ReadProjections.
inline constexpr char kProjectionColumns[] =
    "id, event_types, target::oid, columns::text, key, version_column::text, delete_types, "
    "dropped_target, writes, name, marks";
// Runs the query. Needs an open SPI connection and FixedSearchPath. Read to the end before the
// first projection is made, which runs further statements.
std::vector<ProjectionConfig> ReadProjections(const std::string& sql, Parameters& key);

// Needs an open SPI connection. Throws what is wrong.
ProjectionColumns ResolveColumns(const ProjectionConfig& config);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_PROJECTION_COLUMNS_H_
