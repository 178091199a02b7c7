#include "extension/base/spi.h"

namespace postbox {

SpiConnection::SpiConnection() : exceptions_(std::uncaught_exceptions()) {
  Pg([] { SPI_connect(); });
}

SpiConnection::~SpiConnection() {
  if (std::uncaught_exceptions() == exceptions_) SPI_finish();
}

Parameters& Parameters::AddText(std::string_view text) {
  return Push(TEXTOID, Pg([&] {
                return PointerGetDatum(
                    cstring_to_text_with_len(text.data(), static_cast<int>(text.size())));
              }),
              false);
}

Parameters& Parameters::Push(Oid type, Datum value, bool null) {
  types_.push_back(type);
  values_.push_back(value);
  nulls_.push_back(null ? 'n' : ' ');
  return *this;
}

namespace {

uint64 Check(int result) {
  if (result < 0) {
    Throw(ERRCODE_INTERNAL_ERROR,
          std::string("could not run a statement: ") + SPI_result_code_string(result));
  }
  return SPI_processed;
}

}  // namespace

uint64 Run(const std::string& sql) {
  return Check(Pg([&] { return SPI_execute(sql.c_str(), false, 0); }));
}

uint64 Run(const std::string& sql, Parameters& parameters) {
  return Check(Pg([&] {
    return SPI_execute_with_args(sql.c_str(), parameters.size(), parameters.types(),
                                 parameters.values(), parameters.nulls(), false, 0);
  }));
}

void RunAll(const std::vector<std::string>& statements) {
  for (const std::string& statement : statements) Run(statement);
}

Datum TextValue(std::string_view text) {
  return Pg([&] {
    return PointerGetDatum(cstring_to_text_with_len(text.data(), static_cast<int>(text.size())));
  });
}

Datum TextArrayValue(const std::vector<std::string>& texts) {
  return Pg([&] {
    auto* elements = static_cast<Datum*>(palloc(sizeof(Datum) * (texts.size() + 1)));
    for (std::size_t i = 0; i < texts.size(); ++i) {
      elements[i] = PointerGetDatum(
          cstring_to_text_with_len(texts[i].data(), static_cast<int>(texts[i].size())));
    }
    return PointerGetDatum(construct_array(elements, static_cast<int>(texts.size()), TEXTOID, -1,
                                           false, TYPALIGN_INT));
  });
}

Datum Int64ArrayValue(const std::vector<int64>& numbers, Oid type) {
  return Pg([&] {
    auto* elements = static_cast<Datum*>(palloc(sizeof(Datum) * (numbers.size() + 1)));
    for (std::size_t i = 0; i < numbers.size(); ++i) elements[i] = Int64GetDatum(numbers[i]);
    return PointerGetDatum(construct_array(elements, static_cast<int>(numbers.size()), type,
                                           sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
  });
}

Datum ArrayValue(Oid type, Datum* values, bool* nulls, size_t count) {
  int16 length;
  bool by_value;
  char alignment;
  get_typlenbyvalalign(type, &length, &by_value, &alignment);
  int dimension = static_cast<int>(count);
  int lower_bound = 1;
  return PointerGetDatum(construct_md_array(values, nulls, 1, &dimension, &lower_bound, type,
                                            length, by_value, alignment));
}

Datum TidArrayValue(const std::vector<ItemPointerData>& tids) {
  return Pg([&] {
    auto* elements = static_cast<Datum*>(palloc(sizeof(Datum) * (tids.size() + 1)));
    for (std::size_t i = 0; i < tids.size(); ++i) {
      elements[i] = PointerGetDatum(const_cast<ItemPointerData*>(&tids[i]));
    }
    return PointerGetDatum(construct_array(elements, static_cast<int>(tids.size()), TIDOID,
                                           sizeof(ItemPointerData), false, TYPALIGN_SHORT));
  });
}

Datum DatumColumn(uint64 row, int column, bool* null) {
  bool is_null = true;
  const Datum value =
      SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column, &is_null);
  if (null != nullptr) *null = is_null;
  return is_null ? Datum{0} : value;
}

bool IsNull(uint64 row, int column) {
  bool null = false;
  DatumColumn(row, column, &null);
  return null;
}

bool BoolColumn(uint64 row, int column) { return DatumGetBool(DatumColumn(row, column)); }

int32 Int32Column(uint64 row, int column) { return DatumGetInt32(DatumColumn(row, column)); }

int64 Int64Column(uint64 row, int column) {
  bool null = false;
  const Datum value = DatumColumn(row, column, &null);
  return null ? 0 : DatumGetInt64(value);
}

Oid OidColumn(uint64 row, int column) { return DatumGetObjectId(DatumColumn(row, column)); }

char CharColumn(uint64 row, int column) { return DatumGetChar(DatumColumn(row, column)); }

std::string TextColumn(uint64 row, int column) {
  bool null = false;
  const Datum value = DatumColumn(row, column, &null);
  if (null) return "";
  const text* packed = Pg([&] { return DatumGetTextPP(value); });
  return std::string(VARDATA_ANY(packed), VARSIZE_ANY_EXHDR(packed));
}

std::vector<std::string> TextArrayColumn(uint64 row, int column) {
  std::vector<std::string> texts;
  bool null = false;
  const Datum value = DatumColumn(row, column, &null);
  if (null) return texts;
  Datum* elements = nullptr;
  bool* nulls = nullptr;
  int count = 0;
  Pg([&] {
    deconstruct_array(DatumGetArrayTypeP(value), TEXTOID, -1, false, TYPALIGN_INT, &elements,
                      &nulls, &count);
  });
  for (int i = 0; i < count; ++i) {
    if (nulls[i]) continue;
    const text* element = Pg([&] { return DatumGetTextPP(elements[i]); });
    texts.emplace_back(VARDATA_ANY(element), VARSIZE_ANY_EXHDR(element));
  }
  return texts;
}

ItemPointerData TidColumn(uint64 row, int column) {
  bool null = false;
  const Datum value = DatumColumn(row, column, &null);
  ItemPointerData tid;
  ItemPointerSetInvalid(&tid);
  if (!null) tid = *reinterpret_cast<ItemPointer>(DatumGetPointer(value));
  return tid;
}

std::vector<std::string> TextColumns(uint64 rows, int column) {
  std::vector<std::string> texts;
  texts.reserve(rows);
  for (uint64 row = 0; row < rows; ++row) texts.push_back(TextColumn(row, column));
  return texts;
}

std::string PrintedColumn(uint64 row, int column) {
  const char* text = Pg([&]() -> const char* {
    return SPI_getvalue(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column);
  });
  return text == nullptr ? "" : text;
}

void RequireColumnType(int column, Oid type) {
  const Oid found = SPI_tuptable == nullptr
                        ? InvalidOid
                        : Pg([&] { return SPI_gettypeid(SPI_tuptable->tupdesc, column); });
  if (found == type) return;
  const auto name = [](Oid oid) {
    return std::string(Pg([&]() -> const char* { return format_type_be(oid); }));
  };
  const char* column_name = SPI_tuptable == nullptr ? nullptr : Pg([&]() -> const char* {
    return SPI_fname(SPI_tuptable->tupdesc, column);
  });
  Throw(ERRCODE_DATATYPE_MISMATCH,
        "column \"" + std::string(column_name == nullptr ? "?" : column_name) + "\" is of type " +
            (OidIsValid(found) ? name(found) : "unknown") + ", not " + name(type),
        "The type of the column has been changed.", "Change it back with ALTER TABLE.");
}

void FreeRows() {
  Pg([] {
    SPI_freetuptable(SPI_tuptable);
    SPI_tuptable = nullptr;
  });
}

void ReturnRows(FunctionCallInfo fcinfo, uint64 rows) {
  auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
  Pg([&] {
    for (uint64 row = 0; row < rows; ++row) {
      tuplestore_puttuple(result->setResult, SPI_tuptable->vals[row]);
    }
  });
}

}  // namespace postbox
