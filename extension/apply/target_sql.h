// The texts of the statements that write, delete and find rows of a projection's target.
//
// The columns stand in the order of ProjectionColumns: the key, the version, all others. In every
// statement the parameter of a column has its number. All names come quoted. The stored row is
// called `stored`; it is older than an event if its version is less, or null.
//
// A shadow (shadow_marks.h) keeps a row for a key that was deleted, and marks what events have set.
#ifndef POSTBOX_EXTENSION_APPLY_TARGET_SQL_H_
#define POSTBOX_EXTENSION_APPLY_TARGET_SQL_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "extension/apply/shadow_marks.h"

namespace postbox {

inline void AppendPart(const std::string& part, const char* separator, std::string* list) {
  *list += (list->empty() ? "" : separator) + part;
}

// Appends an assignment of what was to be inserted.
inline void AssignExcluded(const std::string& column, std::string* assignments) {
  AppendPart(column + " = EXCLUDED." + column, ", ", assignments);
}

// Without the cast SQL compares two rows column by column.
inline std::string RecordOf(const std::string& value) {
  return "ROW(" + value + ")::pg_catalog.record";
}

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

  // Of a shadow. `marks`: of each column what it marks, empty for the key and the version.
  // `others`: the columns that other projections write.
  struct Shadow {
    std::string touched, begun;
    std::vector<std::string> marks;
    std::vector<std::string> others;
  };
  void SetShadow(Shadow shadow) { shadow_ = std::move(shadow); }
  bool is_shadow() const { return !shadow_.touched.empty(); }

  // With the columns of which `present` has '1', those of the key and the version among them.
  std::string Upsert(std::string_view present) const {
    return Insert(present) + "VALUES (" + Parameters(present) +
           Marks(present, Parameter(key_size())) + ")" + OnConflict(present) +
           Older(Parameter(key_size())) + ReturningVersion();
  }
  // The same for rows that are there.
  std::string Update(std::string_view present) const {
    std::string assignments;
    for (size_t i = key_size(); i < columns_.size(); ++i) {
      if (present[i] == '1') AppendPart(columns_[i] + " = " + Parameter(i), ", ", &assignments);
    }
    return "UPDATE " + target_ + " AS stored SET " + assignments + " WHERE " + KeyCondition() +
           " AND " + Older(Parameter(key_size())) + ReturningVersion();
  }
  // Many rows with all columns: a parameter is the array of a column. Returns the keys of those
  // that it wrote.
  std::string UpsertSet() const {
    const std::string all(columns_.size(), '1');
    return Insert(all) + SelectSet(all) + OnConflict(all) + Older("EXCLUDED." + version()) +
           " RETURNING " + Key();
  }
  // Of a shadow: notes that the key was deleted.
  std::string MarkDeleted() const {
    const std::string key =
        std::string(key_size() + 1, '1') + std::string(columns_.size() - key_size() - 1, '0');
    const std::string none(shadow_.touched.size(), '0');
    std::string assignments;
    for (size_t i = key_size(); i < columns_.size(); ++i) AssignExcluded(columns_[i], &assignments);
    for (const std::string& other : shadow_.others) AssignExcluded(other, &assignments);
    AssignExcluded(kSetColumn, &assignments);
    return Insert(key, kDeletedColumn) + "VALUES (" + Parameters(key) + ", B'" + none +
           "', true) ON CONFLICT (" + Key() + ") DO UPDATE SET " + assignments + ", " +
           kDeletedColumn + " = true WHERE " + Older(Parameter(key_size()));
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
      differs += ", " + RecordOf("stored." + columns_[i]) + " OPERATOR(pg_catalog.*<>) " +
                 RecordOf(Parameter(i));
    }
    return "SELECT " + differs + FromKey();
  }

 private:
  static std::string Parameter(size_t column) { return "$" + std::to_string(column + 1); }

  size_t key_size() const { return key_operators_.size(); }
  const std::string& version() const { return columns_[key_size()]; }

  std::string SelectSet(const std::string& all) const {
    const std::string rows = " FROM unnest(" + Parameters(all) + ")";
    if (!is_shadow()) return "SELECT *" + rows;
    std::string names;
    for (size_t i = 0; i < columns_.size(); ++i) AppendPart("c" + std::to_string(i), ", ", &names);
    return "SELECT u.*" + Marks(all, "u.c" + std::to_string(key_size())) + rows + " AS u(" + names +
           ")";
  }
  std::string Insert(std::string_view present, const char* more = nullptr) const {
    std::string names;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (present[i] == '1') AppendPart(columns_[i], ", ", &names);
    }
    if (is_shadow()) AppendPart(kSetColumn, ", ", &names);
    if (more != nullptr) AppendPart(more, ", ", &names);
    return "INSERT INTO " + target_ + " AS stored (" + names + ") ";
  }
  std::string Parameters(std::string_view present) const {
    std::string parameters;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (present[i] == '1') AppendPart(Parameter(i), ", ", &parameters);
    }
    return parameters;
  }
  // The value of the marks, behind others. A shadow only.
  std::string Marks(std::string_view present, const std::string& version) const {
    if (!is_shadow()) return "";
    std::string set = shadow_.touched;
    for (size_t i = key_size() + 1; i < columns_.size(); ++i) {
      if (present[i] == '1') set = ShadowMarks::Or(set, shadow_.marks[i]);
    }
    return ", CASE WHEN " + version + " = 1 THEN B'" + ShadowMarks::Or(set, shadow_.begun) +
           "' ELSE B'" + set + "' END";
  }
  // What no value was given for begins with its default again if the key was deleted.
  void AssignInShadow(std::string_view present, std::string* assignments) const {
    std::vector<std::string> absent = shadow_.others;
    for (size_t i = key_size(); i < columns_.size(); ++i) {
      if (present[i] == '0') absent.push_back(columns_[i]);
    }
    const std::string deleted = std::string("CASE WHEN stored.") + kDeletedColumn + " THEN ";
    for (const std::string& column : absent) {
      AppendPart(
          column + " = " + deleted + "EXCLUDED." + column + " ELSE stored." + column + " END", ", ",
          assignments);
    }
    const std::string set(kSetColumn);
    AppendPart(set + " = EXCLUDED." + set + " | " + deleted + "B'" + shadow_.begun +
                   "' ELSE stored." + set + " END, " + kDeletedColumn + " = false",
               ", ", assignments);
  }
  std::string OnConflict(std::string_view present) const {
    std::string assignments;
    for (size_t i = key_size(); i < columns_.size(); ++i) {
      if (present[i] == '1') AssignExcluded(columns_[i], &assignments);
    }
    if (is_shadow()) AssignInShadow(present, &assignments);
    return " ON CONFLICT (" + Key() + ") DO UPDATE SET " + assignments + " WHERE ";
  }
  std::string Key() const {
    std::string key;
    for (size_t i = 0; i < key_size(); ++i) AppendPart(columns_[i], ", ", &key);
    return key;
  }
  std::string KeyCondition() const {
    std::string condition;
    for (size_t i = 0; i < key_size(); ++i) {
      AppendPart("stored." + columns_[i] + " " + key_operators_[i] + " " + Parameter(i), " AND ",
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
  Shadow shadow_;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_TARGET_SQL_H_
