// A statement that is prepared once and run often.
//
// The plan is kept for the life of the Statement. PostgreSQL plans it again by itself when a
// relation in it changes, so what is kept here is the text of the statement; whoever caches a
// Statement must drop it when a NAME in the text may mean something else (a rename).
//
// Run it with the search_path that it was first run with: a change of path costs a new plan.
#ifndef POSTBOX_EXTENSION_STATEMENT_H_
#define POSTBOX_EXTENSION_STATEMENT_H_

#include "extension/guard.h"

namespace postbox {

// Gives back the rows of the last statement before the SPI connection ends, where there are many of
// them.
inline void FreeRows() {
  Pg([] {
    SPI_freetuptable(SPI_tuptable);
    SPI_tuptable = nullptr;
  });
}

class Statement {
 public:
  Statement(std::string sql, std::vector<Oid> types)
      : sql_(std::move(sql)), types_(std::move(types)) {}
  ~Statement() {
    if (plan_ != nullptr) SPI_freeplan(plan_);
  }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // Runs it in the SPI connection that is open, with a new snapshot, and returns the number of
  // rows; they stand in SPI_tuptable. `nulls` as SPI has it, or nullptr.
  uint64 Run(const Datum* values, const char* nulls = nullptr) {
    return Execute(values, nulls, false);
  }

  // The same for a query, which sees what the active snapshot sees.
  uint64 RunReadOnly(const Datum* values) { return Execute(values, nullptr, true); }

  // Runs it, and sets `value` to the bigint in the first column of the first row, 0 if that is
  // NULL. False if there is no row.
  bool RunForInt64(const Datum* values, const char* nulls, int64* value) {
    const bool row = Run(values, nulls) > 0;
    if (row) {
      *value = Pg([] {
        bool null;
        const Datum first = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &null);
        return null ? int64{0} : DatumGetInt64(first);
      });
    }
    FreeRows();
    return row;
  }

 private:
  uint64 Execute(const Datum* values, const char* nulls, bool read_only) {
    return Pg([&]() -> uint64 {
      if (plan_ == nullptr) {
        SPIPlanPtr plan = SPI_prepare(sql_.c_str(), static_cast<int>(types_.size()), types_.data());
        if (plan == nullptr) {
          elog(ERROR, "could not prepare: %s", SPI_result_code_string(SPI_result));
        }
        SPI_keepplan(plan);
        plan_ = plan;
      }
      const int result = SPI_execute_plan(plan_, const_cast<Datum*>(values), nulls, read_only, 0);
      if (result < 0) elog(ERROR, "could not execute: %s", SPI_result_code_string(result));
      return SPI_processed;
    });
  }

  const std::string sql_;
  std::vector<Oid> types_;
  SPIPlanPtr plan_ = nullptr;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_STATEMENT_H_
