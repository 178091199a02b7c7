// The texts of the statements that write, delete and find rows of a projection's target.
//
// The columns stand in the order of ProjectionColumns: the key, the version, all others. In every
// statement the parameter of a column has its number. All names come quoted. The stored row is
// called `stored`; it is older than an event if its version is less, or null.
#ifndef POSTBOX_EXTENSION_APPLY_TARGET_SQL_H_
#define POSTBOX_EXTENSION_APPLY_TARGET_SQL_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace postbox {

class TargetSql {
 public:
  // `key_operators`: for each column of the key the operator that means equal. `returns_version`:
  // what writes a row returns the version that is stored now.
  TargetSql(std::string target, std::vector<std::string> columns,
            std::vector<std::string> key_operators, bool returns_version)
      : target_(std::move(target)),
        columns_(std::move(columns)),
        key_operators_(std::move(key_operators)),
        returns_version_(returns_version) {}

  // With the columns of which `present` has '1', those of the key and the version among them.
  std::string Upsert(std::string_view present) const {
    return Insert(present) + "VALUES (" + Parameters(present) + ")" + OnConflict(present) +
           Older(Parameter(key_size())) + ReturningVersion();
  }
  // The same for rows that are there.
  std::string Update(std::string_view present) const {
    std::string assignments;
    for (size_t i = key_size(); i < columns_.size(); ++i) {
      if (present[i] == '1') Append(columns_[i] + " = " + Parameter(i), ", ", &assignments);
    }
    return "UPDATE " + target_ + " AS stored SET " + assignments + " WHERE " + KeyCondition() +
           " AND " + Older(Parameter(key_size())) + ReturningVersion();
  }
  // Many rows with all columns: a parameter is the array of a column. Returns the keys of those
  // that it wrote.
  std::string UpsertSet() const {
    const std::string all(columns_.size(), '1');
    return Insert(all) + "SELECT * FROM unnest(" + Parameters(all) + ")" + OnConflict(all) +
           Older("EXCLUDED." + version()) + " RETURNING " + Key();
  }

  std::string DeleteOlder() const {
    return "DELETE" + FromKey() + " AND " + Older(Parameter(key_size()));
  }
  std::string DeleteAny() const { return "DELETE" + FromKey(); }
  std::string StoredVersion() const { return "SELECT " + StoredVersionColumn() + FromKey(); }
  // The stored version, and for each other column of which `present` has '1' whether its value is
  // another one: compared as bytes, so that no operator of a type of users is called.
  std::string Difference(std::string_view present) const {
    std::string differs = StoredVersionColumn();
    for (size_t i = key_size() + 1; i < columns_.size(); ++i) {
      if (present[i] != '1') continue;
      differs += ", " + Record("stored." + columns_[i]) + " OPERATOR(pg_catalog.*<>) " +
                 Record(Parameter(i));
    }
    return "SELECT " + differs + FromKey();
  }

 private:
  static std::string Parameter(size_t column) { return "$" + std::to_string(column + 1); }
  // Without the cast SQL compares two rows column by column.
  static std::string Record(const std::string& value) {
    return "ROW(" + value + ")::pg_catalog.record";
  }
  static void Append(const std::string& part, const char* separator, std::string* list) {
    *list += (list->empty() ? "" : separator) + part;
  }

  size_t key_size() const { return key_operators_.size(); }
  const std::string& version() const { return columns_[key_size()]; }

  std::string Insert(std::string_view present) const {
    std::string names;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (present[i] == '1') Append(columns_[i], ", ", &names);
    }
    return "INSERT INTO " + target_ + " AS stored (" + names + ") ";
  }
  std::string Parameters(std::string_view present) const {
    std::string parameters;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (present[i] == '1') Append(Parameter(i), ", ", &parameters);
    }
    return parameters;
  }
  std::string OnConflict(std::string_view present) const {
    std::string assignments;
    for (size_t i = key_size(); i < columns_.size(); ++i) {
      if (present[i] == '1') Append(columns_[i] + " = EXCLUDED." + columns_[i], ", ", &assignments);
    }
    return " ON CONFLICT (" + Key() + ") DO UPDATE SET " + assignments + " WHERE ";
  }
  std::string Key() const {
    std::string key;
    for (size_t i = 0; i < key_size(); ++i) Append(columns_[i], ", ", &key);
    return key;
  }
  std::string KeyCondition() const {
    std::string condition;
    for (size_t i = 0; i < key_size(); ++i) {
      Append("stored." + columns_[i] + " " + key_operators_[i] + " " + Parameter(i), " AND ",
             &condition);
    }
    return condition;
  }
  std::string FromKey() const { return " FROM " + target_ + " AS stored WHERE " + KeyCondition(); }
  std::string Older(const std::string& than) const {
    const std::string stored = "stored." + version();
    return "(" + stored + " < " + than + " OR " + stored + " IS NULL)";
  }
  std::string StoredVersionColumn() const { return "stored." + version() + "::pg_catalog.int8"; }
  std::string ReturningVersion() const {
    return returns_version_ ? " RETURNING " + StoredVersionColumn() : "";
  }

  std::string target_;
  std::vector<std::string> columns_;
  std::vector<std::string> key_operators_;
  bool returns_version_;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_TARGET_SQL_H_
