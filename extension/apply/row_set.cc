#include "extension/apply/row_set.h"

extern "C" {
#include <access/detoast.h>
#include <utils/datum.h>
}

namespace postbox {
namespace {

// No btree refuses an entry (2,704 bytes), and no heap a row (8,160 bytes), for such values.
constexpr size_t kMostBytes = 2000;

// Of a value as it is when nothing is compressed.
size_t SizeOf(Datum value, bool by_value, int16 length) {
  if (by_value || length > 0) return static_cast<size_t>(length);
  return Pg([&] { return toast_raw_datum_size(value); });
}

}  // namespace

RowSet::RowSet(const ProjectionColumns& columns) : key_size_(columns.key_size) {
  std::vector<Oid> arrays;
  for (const ProjectionColumn& column : columns.columns) {
    Column added{.type = column.type, .length = 0, .by_value = false, .not_null = column.not_null};
    arrays.push_back(Pg([&] {
      get_typlenbyval(column.type, &added.length, &added.by_value);
      return get_array_type(column.type);
    }));
    columns_.push_back(added);
  }
  statement_ = Statement(columns.Sql(false).UpsertSet(), arrays, CURSOR_OPT_GENERIC_PLAN);
}

bool RowSet::Takes(const BoundValues& row) const {
  size_t bytes = 0;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (row.present[i] == '0' || (row.nulls[i] == 'n' && columns_[i].not_null)) return false;
    if (row.nulls[i] == 'n') continue;
    bytes += SizeOf(row.values[i], columns_[i].by_value, columns_[i].length);
  }
  return bytes <= kMostBytes;
}

BoundValues RowSet::Copy(const BoundValues& row) const {
  BoundValues copy(columns_.size());
  copy.nulls = row.nulls;
  copy.present = row.present;
  Pg([&] {
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (row.nulls[i] == 'n') continue;
      copy.values[i] = datumCopy(row.values[i], columns_[i].by_value, columns_[i].length);
    }
  });
  return copy;
}

uint64 RowSet::Write(std::span<const BoundValues* const> rows) {
  std::vector<Datum> arrays(columns_.size());
  Pg([&] {
    auto* values = static_cast<Datum*>(palloc(rows.size() * sizeof(Datum)));
    auto* nulls = static_cast<bool*>(palloc(rows.size() * sizeof(bool)));
    for (size_t column = 0; column < columns_.size(); ++column) {
      for (size_t row = 0; row < rows.size(); ++row) {
        values[row] = rows[row]->values[column];
        nulls[row] = rows[row]->nulls[column] == 'n';
      }
      arrays[column] = ArrayValue(columns_[column].type, values, nulls, rows.size());
    }
  });
  return statement_.Run(arrays.data());
}

BoundValues RowSet::WrittenKey(uint64 row) const {
  BoundValues key(columns_.size());
  for (size_t i = 0; i < key_size_; ++i) {
    key.values[i] = DatumColumn(row, static_cast<int>(i) + 1);
  }
  return key;
}

}  // namespace postbox
