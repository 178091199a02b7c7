// What the shadow of a rebuild makes of its target: the comparison of the two, and the statements
// that make the target as the shadow says. All by key, in sets.
//
//   class      target          shadow                    what follows
//   lagging    newer row, or   older row or delete       the rebuild waits for the shadow, or keeps
//              newer delete                              what the target has
//   incomplete any             row without its history   kept
//   update     older or        row                       the columns that events have set; the
//              different row                             version if all of them are
//   insert     no row          row                       the same; the rest gets its defaults
//   delete     row             deleted                   deleted, with a tombstone
//   tombstone  no row          deleted                   a tombstone
//   absent     row             nothing                   kept, or deleted (delete_absent); lagging
//                                                        if it was written since the rebuild began
//                                                        and is to be deleted
//   same       the rest
//
// A row whose columns were not all set, because a projection leaves some of them to others or to a
// default, does not get a greater version: events that the target still expects may set them. Those
// between the two versions are applied again, which changes nothing in the end.
#ifndef POSTBOX_EXTENSION_APPLY_REBUILD_MERGE_H_
#define POSTBOX_EXTENSION_APPLY_REBUILD_MERGE_H_

#include "extension/apply/shadow_layout.h"

namespace postbox {

// What is to be merged.
struct MergePlan {
  std::string shadow;     // quoted, qualified
  std::string tombstone;  // that of the live inbox; empty if the target keeps none
  int generation = 0;     // the current one, until the end of the transaction
  bool delete_absent = false;
  bool some_keys = false;  // the parameters are the arrays of the key columns
  // With their epochs: the first that may have written since the rebuild began, and the next one.
  uint64_t start_xid = 0;
  uint64_t next_xid = 0;
};

class RebuildMerge {
 public:
  // `has_tombstones`: the live inbox has some of the target.
  RebuildMerge(const ShadowLayout& layout, MergePlan plan, bool has_tombstones);

  // Rows (class, count, least key as text), the key for the classes lagging and incomplete.
  std::string Compare() const;

  // Each makes the rows of a class as the shadow says.
  std::string Delete() const;
  std::string DeleteAbsent() const;
  std::string Update() const;
  // The values of postbox_set of the rows to insert, and their INSERT.
  std::string Masks() const;
  std::string Insert(const std::string& mask) const;
  // Rows that a trigger of the target has left older than the shadow.
  std::string CountLeft() const;
  // Both after the rows. Nothing to do if there is no table of tombstones.
  std::string RaiseTombstones() const;
  std::string RemoveTombstones() const;

 private:
  std::string Key(const std::string& row) const;
  std::string KeyText(const std::string& key) const;
  std::string SameKey(const std::string& left, const std::string& right) const;
  std::string Keyed(const std::string& row) const;
  std::string Shadow(const std::string& row) const { return plan_.shadow + " AS " + row; }
  std::string Target(const std::string& row) const { return layout_.target_name() + " AS " + row; }
  std::string Lagging() const;
  std::string IsOld() const;
  std::string HasKey() const;
  std::string Differs() const;
  std::string NewValue(size_t column) const;
  std::string NewVersion(size_t version) const;
  std::string Changes() const;
  std::string DeletedAt() const;
  std::string TombstoneJoin() const;

  const ShadowLayout& layout_;
  const MergePlan plan_;
  const bool has_tombstones_;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_REBUILD_MERGE_H_
