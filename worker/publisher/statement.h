// A prepared statement of the worker, and what goes into it and comes out of it.
//
// A statement is planned at its first use and kept for the life of the object; the server plans it
// again when the table changes. It runs in the transaction that InTransaction() began, each time
// with a new snapshot.
#ifndef POSTBOX_WORKER_PUBLISHER_STATEMENT_H_
#define POSTBOX_WORKER_PUBLISHER_STATEMENT_H_

#include "extension/guard.h"

namespace postbox::publisher {

class Statement {
 public:
  Statement() = default;
  Statement(std::string sql, std::vector<Oid> types)
      : sql_(std::move(sql)), types_(std::move(types)) {}
  ~Statement();
  Statement(Statement&& other) noexcept { *this = std::move(other); }
  Statement& operator=(Statement&& other) noexcept {
    std::swap(sql_, other.sql_);
    std::swap(types_, other.types_);
    std::swap(plan_, other.plan_);
    return *this;
  }

  // Runs it; `values` in the order of the types, none of them null. Returns the number of rows,
  // which stand in SPI_tuptable until the next statement runs. Throws PostgresError.
  uint64 Run(std::initializer_list<Datum> values);

 private:
  std::string sql_;
  std::vector<Oid> types_;
  SPIPlanPtr plan_ = nullptr;
};

// Values for Run(); they live in the memory of the transaction.
Datum TextValue(std::string_view text);
Datum TextArrayValue(const std::vector<std::string>& texts);
Datum TidArrayValue(const std::vector<ItemPointerData>& tids);

// A column of a row of SPI_tuptable, columns from 1. A null is 0, an empty text or an invalid
// ctid.
bool IsNull(uint64 row, int column);
int64 Int64Column(uint64 row, int column);
int32 Int32Column(uint64 row, int column);
std::string TextColumn(uint64 row, int column);
ItemPointerData TidColumn(uint64 row, int column);
// Every row's text in one column.
std::vector<std::string> TextColumns(uint64 rows, int column);

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_STATEMENT_H_
