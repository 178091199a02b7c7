// What a table that Postbox makes consists of: by this it is created, compared with what is there,
// and repaired.
//
// Tables belong to their users, who may alter them. What makes no difference to Postbox is no flaw:
// further columns, indexes and constraints, other names, other defaults.
#ifndef POSTBOX_EXTENSION_SHARED_TABLE_SHAPE_H_
#define POSTBOX_EXTENSION_SHARED_TABLE_SHAPE_H_

#include "extension/base/spi.h"

namespace postbox {

struct ColumnShape {
  std::string name;
  std::string type;           // as format_type() writes it
  std::string default_value;  // an expression; empty: none is looked for
  bool not_null = true;
  std::string more = "";  // further clauses
  // What the rows that are there get if the column was dropped and has no default; empty: nothing
  // can put the column back.
  std::string filler = "";
  bool can_be_added = true;  // the order of the columns does not matter
};

struct IndexShape {
  std::string suffix;     // of its name
  std::string keys;       // as pg_get_indexdef() writes them, separated by ", "
  std::string predicate;  // as pg_get_expr() writes it; empty: none
};

// Of a table whose partitions are made beside it (extension/registry/generations.h).
inline constexpr char kByGeneration[] = " PARTITION BY LIST (generation)";

struct TableShape {
  std::vector<ColumnShape> columns;
  std::string primary_key;  // its columns; empty: none
  std::vector<IndexShape> indexes;
  std::string options;  // what follows the columns, for example kByGeneration
  std::string comment;
};

// What is wrong, and the statements that repair it; none if there is no repair.
struct Flaw {
  std::string object;
  std::string problem;
  std::vector<std::string> repair;
};

// The statements that create a table of this shape. `schema` and `name` are not quoted.
std::vector<std::string> CreateStatements(const TableShape& shape, const std::string& schema,
                                          const std::string& name);

// The statement that creates one of its indexes on `table`, which is quoted and qualified. `base`
// is what the name of the index begins with; if that is too long or taken, it gets another one.
std::string CreateIndexStatement(const IndexShape& index, const std::string& table, Oid schema,
                                 const std::string& base);

// In what the relation differs from the shape. Both functions need SPI and FixedSearchPath.
std::vector<Flaw> FindFlaws(Oid relation, const TableShape& shape);

// The quoted, qualified names of the valid indexes of the relation that are among these.
std::vector<std::string> FindIndexes(Oid relation, const std::vector<IndexShape>& indexes);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_SHARED_TABLE_SHAPE_H_
