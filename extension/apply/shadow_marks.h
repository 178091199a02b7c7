// What the shadow of a rebuild records beside the values of its rows (rebuild.h).
//
// Column postbox_set has a bit for each mapped column, for each version column and for each
// projection of the target: that an event of the window has set the column; that the history of the
// row begins in the window, so that no earlier event is missing; that an event of the projection
// has come. It is known to be the whole history if an event has version 1, or follows a delete.
// Column postbox_deleted says that the last event of the key has deleted it.
//
// A projection of the shadow knows its bits as marks. They are texts of '0' and '1', and are stored
// with the projection: {touched, begun, COLUMN, MARK, COLUMN, MARK, ...}.
#ifndef POSTBOX_EXTENSION_APPLY_SHADOW_MARKS_H_
#define POSTBOX_EXTENSION_APPLY_SHADOW_MARKS_H_

#include <map>
#include <string>
#include <vector>

namespace postbox {

inline constexpr char kSetColumn[] = "postbox_set";
inline constexpr char kDeletedColumn[] = "postbox_deleted";
// The name of a CHECK that stands for a NOT NULL of the target, with the bit of the column behind
// it.
inline constexpr char kRequiredCheck[] = "postbox_required_";

struct ShadowMarks {
  std::string touched;                         // of every event of the projection
  std::string begun;                           // of one with which the history begins
  std::map<std::string, std::string> columns;  // by name: of an event that sets the column

  bool empty() const { return touched.empty(); }
  // The name of the CHECK that would be that of the column.
  std::string RequiredCheck(const std::string& column) const {
    const auto mark = columns.find(column);
    return mark == columns.end() ? "" : kRequiredCheck + std::to_string(mark->second.find('1'));
  }
  std::vector<std::string> Stored() const {
    std::vector<std::string> stored = {touched, begun};
    for (const auto& [column, mark] : columns) stored.insert(stored.end(), {column, mark});
    return stored;
  }
  static ShadowMarks Of(const std::vector<std::string>& stored) {
    ShadowMarks marks;
    if (stored.size() < 2) return marks;
    marks.touched = stored[0];
    marks.begun = stored[1];
    for (size_t i = 2; i + 1 < stored.size(); i += 2) marks.columns[stored[i]] = stored[i + 1];
    return marks;
  }
  static std::string Or(std::string left, const std::string& right) {
    for (size_t i = 0; i < left.size(); ++i) {
      if (right[i] == '1') left[i] = '1';
    }
    return left;
  }
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_SHADOW_MARKS_H_
