// A statement that is prepared once and run often: the one way to keep a plan. (The INSERT of an
// event is the exception that goes to the executor by itself: extension/emit/insert_plan.h.)
//
// The plan is kept for the life of the Statement. PostgreSQL plans it again by itself when a
// relation in it changes. What is kept here is the text of the statement, so a cache must drop its
// Statements when a NAME in the text may mean something else (a rename).
//
// Run it with the search_path that it was first run with: a change of path costs a new plan.
#ifndef POSTBOX_EXTENSION_BASE_STATEMENT_H_
#define POSTBOX_EXTENSION_BASE_STATEMENT_H_

#include "extension/base/spi.h"

extern "C" {
#include <tcop/dest.h>
}

namespace postbox {

class Statement {
 public:
  Statement() = default;  // to be assigned before it is run
  // `cursor_options`: CURSOR_OPT_GENERIC_PLAN for a plan that never depends on the values.
  Statement(std::string sql, std::vector<Oid> types, int cursor_options = 0)
      : sql_(std::move(sql)), types_(std::move(types)), cursor_options_(cursor_options) {}
  // One that finds rows by a key, for which there is an index: no table is read from end to end,
  // whatever the statistics say. The plan is made when there are few rows and kept when there are
  // many, until autovacuum comes; by costs it would pass over all of them each time.
  static Statement ByKey(std::string sql, std::vector<Oid> types);
  ~Statement();
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&& other) noexcept;

  // Runs it in the SPI connection that is open, with a new snapshot, and returns the number of
  // rows; they are in SPI_tuptable until the next statement runs. `values` in the order of the
  // types, `nulls` as SPI has it, or nullptr.
  uint64 Run(const Datum* values, const char* nulls = nullptr) {
    return Execute(values, nulls, false);
  }
  uint64 Run(std::initializer_list<Datum> values) { return Run(values.begin()); }

  // The same for a query, which sees what the active snapshot sees.
  uint64 RunReadOnly(const Datum* values, const char* nulls = nullptr) {
    return Execute(values, nulls, true);
  }
  uint64 RunReadOnly(std::initializer_list<Datum> values) { return RunReadOnly(values.begin()); }

  // The same, with each row given to `receiver` while the query runs; SPI_tuptable has none.
  void RunReadOnly(const Datum* values, DestReceiver* receiver);

  // Runs it, and sets `value` to the bigint in the first column of the first row, 0 if that is
  // NULL. False if there is no row. Throws datatype_mismatch if the column is no bigint.
  bool RunForInt64(const Datum* values, const char* nulls, int64* value);

  // Looks up all names and makes the plan, as the current user, unless there is a valid one. Until
  // the next invalidation message, running it looks up nothing. Returns SPI's plan, which stays
  // this object's.
  SPIPlanPtr Plan();
  // Whether running it now would look up nothing.
  bool IsPlanned() const;
  bool has_text() const { return !sql_.empty(); }

 private:
  void Prepare();
  void PlanByKey();
  uint64 Execute(const Datum* values, const char* nulls, bool read_only);

  std::string sql_;
  std::vector<Oid> types_;
  int cursor_options_ = 0;
  SPIPlanPtr plan_ = nullptr;
  bool by_key_ = false;
  bool planned_by_key_ = false;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_BASE_STATEMENT_H_
