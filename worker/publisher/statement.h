// The prepared statements of the worker, and what goes into them and comes out of them. A statement
// runs in the transaction that InTransaction() began, each time with a new snapshot.
#ifndef POSTBOX_WORKER_PUBLISHER_STATEMENT_H_
#define POSTBOX_WORKER_PUBLISHER_STATEMENT_H_

#include "extension/guard.h"
#include "extension/statement.h"

namespace postbox::publisher {

// postbox::Statement, movable and with its values in a list.
class Statement {
 public:
  Statement() = default;
  Statement(std::string sql, std::vector<Oid> types)
      : statement_(std::make_unique<::postbox::Statement>(std::move(sql), std::move(types))) {}

  // Runs it; `values` in the order of the types, none of them null. Returns the number of rows,
  // which stand in SPI_tuptable until the next statement runs. Throws PostgresError.
  uint64 Run(std::initializer_list<Datum> values) { return statement_->Run(values.begin()); }

  // The same for a query that sees what the active snapshot sees, not a new one.
  uint64 RunReadOnly(std::initializer_list<Datum> values) {
    return statement_->RunReadOnly(values.begin());
  }

 private:
  std::unique_ptr<::postbox::Statement> statement_;
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
