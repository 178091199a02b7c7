// The primary key of a table, as SQL: for a reader that goes through the table in the order of the
// key, a chunk at a time (backfill_chunk.cc).
//
// Rule: what is compared here is compared as the index of the key does it. So values are compared
// with the operators of the index's classes, found where those classes are, under the collation of
// the column. A domain is compared as its base type: a role that may create operators where the
// classes are could make one of the domain, which would run as the role of the backfill. A text of
// a value is what the output function of its type writes under pinned
// settings, and is read by the input function of its base type.
#ifndef POSTBOX_EXTENSION_EMIT_PAGE_KEY_H_
#define POSTBOX_EXTENSION_EMIT_PAGE_KEY_H_

#include "extension/base/guard.h"

namespace postbox {

// The values of a key, as texts; empty if there is none.
using KeyTexts = std::vector<std::string>;

class PageKey {
 public:
  // Needs SPI and FixedSearchPath. Throws invalid_parameter_value if the table has no primary key.
  explicit PageKey(Oid relation);

  const std::vector<std::string>& names() const { return names_; }
  // `pg_catalog.text COLLATE pg_catalog."C"`: with these, values are in the same order.
  const std::vector<std::string>& types() const { return types_; }
  // For FixedSearchPath, where the statements below run.
  const std::string& search_path() const { return search_path_; }

  // `a, b`.
  std::string Columns() const { return List(""); }
  std::string Descending() const { return List(" DESC"); }
  // `(a, b) > ('1'::pg_catalog.int8, 'x'::pg_catalog.text)`, with this operator.
  std::string Compared(const char* how, const KeyTexts& texts) const;

 private:
  std::string List(const char* suffix) const;

  std::vector<std::string> names_;
  std::vector<std::string> types_;
  std::vector<std::string> operands_;  // the columns, as their base types
  std::vector<std::string> casts_;     // base types with their modifiers
  std::string search_path_;
};

// Throws object_not_in_prerequisite_state if the snapshot of the transaction may be old: the bound
// of a backfill would leave out rows that have no events.
void RequireReadCommitted();

// `ONLY name` of a plain table, and the name of a partitioned one.
std::string RowsOf(Oid relation);

// From here on statements find their rows by an index, whatever the statistics say. Ends with the
// nest level that is current: that of FixedSearchPath or ActAs.
void PreferIndexes();

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_EMIT_PAGE_KEY_H_
