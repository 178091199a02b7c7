#include "extension/apply/rebuild_merge.h"

#include "extension/base/relation.h"
#include "extension/registry/inbox_shape.h"

namespace postbox {
namespace {

void Append(const std::string& part, const char* separator, std::string* list) {
  *list += (list->empty() ? "" : separator) + part;
}

std::string Of(const std::string& row, const ShadowLayout::Column& column) {
  return row + "." + Quoted(column.name);
}

const std::string kDeleted = std::string("s.") + kDeletedColumn;

}  // namespace

RebuildMerge::RebuildMerge(const ShadowLayout& layout, MergePlan plan, bool has_tombstones)
    : layout_(layout), plan_(std::move(plan)), has_tombstones_(has_tombstones) {}

std::string RebuildMerge::Key(const std::string& row) const {
  std::string key;
  for (const ShadowLayout::Column& column : layout_.key()) Append(Of(row, column), ", ", &key);
  return key;
}

std::string RebuildMerge::KeyText(const std::string& key) const {
  return "postbox.key_text(" + std::to_string(layout_.target()) + "::oid::regclass, " + key + ")";
}

std::string RebuildMerge::SameKey(const std::string& left, const std::string& right) const {
  std::string condition;
  for (size_t i = 0; i < layout_.key().size(); ++i) {
    const ShadowLayout::Column& column = layout_.key()[i];
    Append(Of(left, column) + " " + layout_.key_operators()[i] + " " + Of(right, column), " AND ",
           &condition);
  }
  return condition;
}

// Behind other conditions: the row has one of the keys that are rebuilt.
std::string RebuildMerge::Keyed(const std::string& row) const {
  if (!plan_.some_keys) return "";
  std::string arrays, names, condition;
  for (size_t i = 0; i < layout_.key().size(); ++i) {
    const std::string name = Quoted(layout_.key()[i].name);
    Append("$" + std::to_string(i + 1), ", ", &arrays);
    Append(name, ", ", &names);
    Append("k." + name + " " + layout_.key_operators()[i] + " " + Of(row, layout_.key()[i]),
           " AND ", &condition);
  }
  return " AND EXISTS (SELECT FROM unnest(" + arrays + ") AS k(" + names + ") WHERE " + condition +
         ")";
}

std::string RebuildMerge::Lagging() const {
  std::string condition;
  for (const ShadowLayout::Column& version : layout_.versions()) {
    Append("coalesce(" + Of("t", version) + " > " + Of("s", version) + ", false)", " OR ",
           &condition);
  }
  return "(" + condition + ")";
}

// No transaction since the beginning of the rebuild has written the row. A row keeps its xmin for
// ever: age() of one that is billions of transactions old may be anything. So a row is old if its
// xmin is none of the numbers that were given since.
std::string RebuildMerge::IsOld() const {
  constexpr uint64_t kXids = uint64_t{1} << 32;
  return "mod(t.xmin::text::bigint + " + std::to_string(kXids - plan_.start_xid % kXids) + ", " +
         std::to_string(kXids) + ") >= " + std::to_string(plan_.next_xid - plan_.start_xid);
}

std::string RebuildMerge::NewValue(size_t number) const {
  const ShadowLayout::Column& column = layout_.columns()[number];
  return "CASE WHEN " + ShadowLayout::HasBit("s", number) + " THEN " + Of("s", column) + " ELSE " +
         Of("t", column) + " END";
}

std::string RebuildMerge::NewVersion(size_t number) const {
  const ShadowLayout::Column& version = layout_.versions()[number];
  return "CASE WHEN " + Of("s", version) + " IS NOT NULL AND " + layout_.Full("s", number) +
         " THEN " + Of("s", version) + " ELSE " + Of("t", version) + " END";
}

// A unique index that is no primary key has rows without one; no event means them.
std::string RebuildMerge::HasKey() const {
  std::string condition;
  for (const ShadowLayout::Column& column : layout_.key()) {
    Append(Of("t", column) + " IS NOT NULL", " AND ", &condition);
  }
  return condition;
}

// By their bytes: not every type has an operator for it.
std::string RebuildMerge::Differs() const {
  std::string old_values, new_values;
  for (size_t i = 0; i < layout_.columns().size(); ++i) {
    Append(Of("t", layout_.columns()[i]), ", ", &old_values);
    Append(NewValue(i), ", ", &new_values);
  }
  for (size_t i = 0; i < layout_.versions().size(); ++i) {
    Append(Of("t", layout_.versions()[i]), ", ", &old_values);
    Append(NewVersion(i), ", ", &new_values);
  }
  return "ROW(" + old_values + ")::record *<> ROW(" + new_values + ")::record";
}

// The version of the delete of a key of the shadow, in a statement with TombstoneJoin().
std::string RebuildMerge::DeletedAt() const {
  return has_tombstones_ ? "d.version" : "NULL::bigint";
}

std::string RebuildMerge::TombstoneJoin() const {
  if (!has_tombstones_) return "";
  return " LEFT JOIN (SELECT key, max(version) AS version FROM " + plan_.tombstone +
         " WHERE target = " + std::to_string(layout_.target()) +
         "::oid GROUP BY key) AS d ON d.key = " + KeyText(Key("s"));
}

std::string RebuildMerge::Compare() const {
  std::string key, names, key_of_class;
  for (size_t i = 0; i < layout_.key().size(); ++i) {
    const ShadowLayout::Column& column = layout_.key()[i];
    const std::string name = "k" + std::to_string(i);
    Append("coalesce(" + Of("t", column) + ", " + Of("s", column) + ")", ", ", &key);
    Append(name, ", ", &names);
    Append("c." + name, ", ", &key_of_class);
  }
  const std::string version = Of("s", layout_.versions()[0]);
  std::string keyed = Keyed("t");
  if (!keyed.empty()) keyed = " WHERE true" + keyed + " OR true" + Keyed("s");
  const std::string absent = plan_.delete_absent
                                 ? "CASE WHEN NOT (" + HasKey() + ") THEN 'same' WHEN " + IsOld() +
                                       " THEN 'delete_absent' ELSE 'lagging' END"
                                 : "'absent'";
  return "SELECT c.class, count(*), min(CASE WHEN c.class IN ('lagging', 'incomplete') THEN " +
         KeyText(key_of_class) + " END) FROM (SELECT " + key + ", CASE WHEN s." + kSetColumn +
         " IS NULL THEN " + absent + " WHEN t.tableoid IS NOT NULL THEN CASE WHEN " + Lagging() +
         " THEN 'lagging' WHEN " + kDeleted + " THEN 'delete' WHEN NOT " + layout_.Complete("s") +
         " THEN 'incomplete' WHEN " + Differs() + " THEN 'update' ELSE 'same' END WHEN " +
         kDeleted + " THEN CASE WHEN " + DeletedAt() + " >= " + version +
         " THEN 'same' ELSE 'tombstone' END WHEN " + DeletedAt() + " >= " + version +
         " THEN 'lagging' WHEN NOT " + layout_.Complete("s") +
         " THEN 'incomplete' ELSE 'insert' END FROM " + Target("t") + " FULL JOIN " + Shadow("s") +
         " ON " + SameKey("t", "s") + TombstoneJoin() + keyed + ") AS c(" + names +
         ", class) GROUP BY 1";
}

std::string RebuildMerge::Delete() const {
  return "DELETE FROM " + Target("t") + " USING " + Shadow("s") + " WHERE " + SameKey("t", "s") +
         " AND " + kDeleted + " AND NOT " + Lagging() + Keyed("s");
}

std::string RebuildMerge::DeleteAbsent() const {
  return "DELETE FROM " + Target("t") + " WHERE NOT EXISTS (SELECT FROM " + Shadow("s") +
         " WHERE " + SameKey("t", "s") + ") AND " + IsOld() + " AND " + HasKey() + Keyed("t");
}

std::string RebuildMerge::Changes() const {
  return SameKey("t", "s") + " AND NOT " + kDeleted + " AND NOT " + Lagging() + " AND " +
         layout_.Complete("s") + Keyed("s");
}

std::string RebuildMerge::Update() const {
  std::string assignments;
  for (size_t i = 0; i < layout_.columns().size(); ++i) {
    Append(Quoted(layout_.columns()[i].name) + " = " + NewValue(i), ", ", &assignments);
  }
  for (size_t i = 0; i < layout_.versions().size(); ++i) {
    Append(Quoted(layout_.versions()[i].name) + " = " + NewVersion(i), ", ", &assignments);
  }
  return "UPDATE " + Target("t") + " SET " + assignments + " FROM " + Shadow("s") + " WHERE " +
         Changes() + " AND " + Differs();
}

std::string RebuildMerge::CountLeft() const {
  std::string older;
  for (size_t i = 0; i < layout_.versions().size(); ++i) {
    Append("coalesce(" + Of("t", layout_.versions()[i]) + " < " + NewVersion(i) + ", false)",
           " OR ", &older);
  }
  return "SELECT count(*) FROM " + Target("t") + ", " + Shadow("s") + " WHERE " + Changes() +
         " AND (" + older + ")";
}

std::string RebuildMerge::Masks() const {
  return "SELECT DISTINCT s." + std::string(kSetColumn) + "::text FROM " + Shadow("s") +
         " WHERE NOT " + kDeleted + " AND " + layout_.Complete("s") + " AND NOT EXISTS (SELECT " +
         "FROM " + Target("t") + " WHERE " + SameKey("t", "s") + ")" + Keyed("s");
}

// All rows are found before the first is inserted. Otherwise a target that was emptied, of whose
// statistics the plan makes a scan for each row, would be scanned with what was just inserted.
std::string RebuildMerge::Insert(const std::string& mask) const {
  std::string names, values;
  const auto add = [&](const ShadowLayout::Column& column) {
    Append(Quoted(column.name), ", ", &names);
    Append(Of("s", column), ", ", &values);
  };
  for (const ShadowLayout::Column& column : layout_.key()) add(column);
  for (size_t i = 0; i < layout_.columns().size(); ++i) {
    if (mask[i] == '1') add(layout_.columns()[i]);
  }
  std::set<size_t> versions;
  for (size_t i = 0; i < layout_.writers().size(); ++i) {
    if (mask[layout_.TouchedBit(i)] == '1') versions.insert(layout_.writers()[i].version);
  }
  for (const size_t version : versions) add(layout_.versions()[version]);
  return "INSERT INTO " + layout_.target_name() + " (" + names + ") SELECT " + values + " FROM " +
         Shadow("s") + TombstoneJoin() + " WHERE s." + kSetColumn + " = B'" + mask + "' AND NOT " +
         kDeleted + " AND NOT coalesce(" + DeletedAt() + " >= " + Of("s", layout_.versions()[0]) +
         ", false) AND NOT EXISTS (SELECT FROM " + Target("t") + " WHERE " + SameKey("t", "s") +
         ")" + Keyed("s") + " ORDER BY s.ctid";
}

// The only statements of a rebuild that write tombstones; TombstoneJoin reads them.
std::string RebuildMerge::RaiseTombstones() const {
  if (plan_.tombstone.empty()) return "";
  return "INSERT INTO " + plan_.tombstone + " AS d (target, key, version, generation) SELECT " +
         std::to_string(layout_.target()) + "::oid, " + KeyText(Key("s")) + ", " +
         Of("s", layout_.versions()[0]) + ", " + GenerationLiteral(plan_.generation) + " FROM " +
         Shadow("s") + " WHERE " + kDeleted + " AND NOT EXISTS (SELECT FROM " + Target("t") +
         " WHERE " + SameKey("t", "s") + ")" + Keyed("s") +
         " ON CONFLICT (target, key, generation) DO UPDATE SET version = EXCLUDED.version, "
         "deleted_at = now() WHERE d.version < EXCLUDED.version";
}

std::string RebuildMerge::RemoveTombstones() const {
  if (!has_tombstones_) return "";
  return "DELETE FROM " + plan_.tombstone + " AS d USING " + Shadow("s") +
         " WHERE d.target = " + std::to_string(layout_.target()) +
         "::oid AND d.key = " + KeyText(Key("s")) + " AND NOT " + kDeleted + " AND d.version < " +
         Of("s", layout_.versions()[0]) + " AND EXISTS (SELECT FROM " + Target("t") + " WHERE " +
         SameKey("t", "s") + ")" + Keyed("s");
}

}  // namespace postbox
