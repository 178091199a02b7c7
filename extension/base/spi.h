// Running SQL from C++: the connection, statements that run once, and the values that go in and
// come out. What runs often is a Statement (statement.h). Names in SQL text are quoted with
// Quoted() (relation.h) and nothing else.
//
// The rows of a statement are those of SPI_tuptable and are read with the ...Column functions,
// until the next statement replaces them. So a loop over rows runs no other statement: where each
// row needs one, read all rows into C++ values first. (A loop that is hot may take whole rows apart
// inside one Pg() instead.)
//
// All of it throws PostgresError (guard.h); no ereport gets out.
#ifndef POSTBOX_EXTENSION_BASE_SPI_H_
#define POSTBOX_EXTENSION_BASE_SPI_H_

#include "extension/base/guard.h"

namespace postbox {

// Connects to SPI for its lifetime. While an error is on its way it leaves the connection to the
// abort of the (sub)transaction, which knows how deep the nesting was when the error came.
class SpiConnection {
 public:
  SpiConnection();
  ~SpiConnection();
  SpiConnection(const SpiConnection&) = delete;
  SpiConnection& operator=(const SpiConnection&) = delete;

 private:
  int exceptions_;
};

// Positional parameters of a statement. Texts are copied into palloc's memory, in the context that
// is current.
class Parameters {
 public:
  Parameters& Add(Oid type, Datum value) { return Push(type, value, false); }
  Parameters& AddNull(Oid type) { return Push(type, Datum{0}, true); }
  Parameters& AddText(std::string_view text);
  Parameters& AddTextOrNull(const std::optional<std::string>& text) {
    return text.has_value() ? AddText(*text) : AddNull(TEXTOID);
  }
  Parameters& AddInt(int value) { return Push(INT4OID, Int32GetDatum(value), false); }
  Parameters& AddOid(Oid type, Oid value) { return Push(type, ObjectIdGetDatum(value), false); }

  int size() const { return static_cast<int>(types_.size()); }
  Oid* types() { return types_.data(); }
  Datum* values() { return values_.data(); }
  const char* nulls() const { return nulls_.data(); }

 private:
  Parameters& Push(Oid type, Datum value, bool null);

  std::vector<Oid> types_;
  std::vector<Datum> values_;
  std::vector<char> nulls_;
};

// Runs one statement (or, without parameters, several utility commands). Returns the number of
// rows; they are in SPI_tuptable.
uint64 Run(const std::string& sql);
uint64 Run(const std::string& sql, Parameters& parameters);
void RunAll(const std::vector<std::string>& statements);

// Values to pass; they live in the memory context that is current.
Datum TextValue(std::string_view text);
Datum TextArrayValue(const std::vector<std::string>& texts);
// Of a type of 64 bits: bigint, xid8.
Datum Int64ArrayValue(const std::vector<int64>& numbers, Oid type = INT8OID);
// Inside Pg(). `nulls` may be nullptr.
Datum ArrayValue(Oid type, Datum* values, bool* nulls, size_t count);
Datum TidArrayValue(const std::vector<ItemPointerData>& tids);

// A column of a row of SPI_tuptable, rows from 0, columns from 1, valid until the next statement.
// The type must be the one that the function names (text may be varchar; an Oid may be regclass). A
// NULL is 0, false, an empty text or an invalid ctid.
Datum DatumColumn(uint64 row, int column, bool* null = nullptr);
bool IsNull(uint64 row, int column);
bool BoolColumn(uint64 row, int column);
int32 Int32Column(uint64 row, int column);
int64 Int64Column(uint64 row, int column);
Oid OidColumn(uint64 row, int column);
char CharColumn(uint64 row, int column);  // of the type "char"
std::string TextColumn(uint64 row, int column);
std::vector<std::string> TextArrayColumn(uint64 row,
                                         int column);  // without the elements that are NULL
ItemPointerData TidColumn(uint64 row, int column);
// Every row's text in one column.
std::vector<std::string> TextColumns(uint64 rows, int column);
// A value of any type as its output function writes it.
std::string PrintedColumn(uint64 row, int column);

// Throws datatype_mismatch unless the column of the rows of SPI_tuptable is of that type. To be
// called once a statement, before a value out of a user's table is taken for one of a type: its
// owner may have altered it.
void RequireColumnType(int column, Oid type);

// Gives back the rows of the last statement before the SPI connection ends, where there are many of
// them.
void FreeRows();

// Returns the first rows of the last statement from a function with a materialized result.
void ReturnRows(FunctionCallInfo fcinfo, uint64 rows);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_BASE_SPI_H_
