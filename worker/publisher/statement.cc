// See statement.h.
#include "worker/publisher/statement.h"

namespace postbox::publisher {

namespace {

Datum Column(uint64 row, int column, bool* null) {
  return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column, null);
}

}  // namespace

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

bool IsNull(uint64 row, int column) {
  bool null = false;
  Column(row, column, &null);
  return null;
}

int64 Int64Column(uint64 row, int column) {
  bool null = false;
  const Datum value = Column(row, column, &null);
  return null ? 0 : DatumGetInt64(value);
}

int32 Int32Column(uint64 row, int column) {
  bool null = false;
  const Datum value = Column(row, column, &null);
  return null ? 0 : DatumGetInt32(value);
}

std::string TextColumn(uint64 row, int column) {
  bool null = false;
  const Datum value = Column(row, column, &null);
  if (null) return "";
  const text* packed = Pg([&] { return DatumGetTextPP(value); });
  return std::string(VARDATA_ANY(packed), VARSIZE_ANY_EXHDR(packed));
}

ItemPointerData TidColumn(uint64 row, int column) {
  bool null = false;
  const Datum value = Column(row, column, &null);
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

}  // namespace postbox::publisher
