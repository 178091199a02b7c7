#include "extension/emit/chunk_rows.h"

#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/trust/owner_rights.h"
#include "extension/trust/pinned_settings.h"

extern "C" {
#include <access/detoast.h>
}

namespace postbox {
namespace {

AttrNumber NumberOf(Relation table, const std::string& name) {
  const AttrNumber number = Pg([&] { return get_attnum(RelationGetRelid(table), name.c_str()); });
  if (number > 0) return number;
  Throw(ERRCODE_UNDEFINED_COLUMN,
        "column " + Quoted(name) + " of relation " + RelationName(RelationGetRelid(table)) +
            " does not exist",
        "A backfill names it.", "Cancel the backfill, and create another one.");
}

}  // namespace

ChunkRows::ChunkRows(const Backfill& backfill, Relation table)
    : backfill_(backfill), table_(table), key_(backfill.relation) {
  if (key_.names() != backfill.page_key || key_.types() != backfill.page_types) {
    Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
          "table " + RelationName(backfill.relation) + " has another primary key than backfill \"" +
              backfill.name + "\"",
          "The position of the backfill is a value of the primary key that the table had.",
          "Cancel the backfill, and create another one.");
  }
  // The role of the backfill has written its row.
  for (const KeyTexts* texts : {&backfill.position, &backfill.last_key}) {
    if (texts->empty() || texts->size() == key_.names().size()) continue;
    Throw(ERRCODE_DATA_CORRUPTED,
          "the row of backfill \"" + backfill.name + "\" in postbox.backfill is damaged",
          "A position has another number of values than the primary key has columns.",
          "Cancel the backfill, and create another one.");
  }
  slot_ = Pg([&] { return MakeSingleTupleTableSlot(RelationGetDescr(table_), &TTSOpsVirtual); });
}

std::vector<std::string> ChunkRows::NeededColumns() const {
  const TupleDesc columns = RelationGetDescr(table_);
  std::vector<std::string> names;
  if (backfill_.payload.has_value() || backfill_.columns.empty()) {
    for (int i = 0; i < columns->natts; ++i) {
      const FormData_pg_attribute* column = TupleDescAttr(columns, i);
      if (!column->attisdropped) names.emplace_back(NameStr(column->attname));
    }
    return names;
  }
  for (const auto* more : {&key_.names(), &backfill_.key, &backfill_.columns}) {
    for (const std::string& name : *more) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

std::string ChunkRows::Between(const KeyTexts& upto) const {
  return (backfill_.position.empty() ? "" : key_.Compared(">", backfill_.position) + " AND ") +
         key_.Compared("<=", upto);
}

bool ChunkRows::Lock(int most) {
  if (backfill_.last_key.empty()) return false;
  // Operators of the key's types may be the code of a user.
  const FixedSearchPath path_of_key(key_.search_path().c_str());
  const OwnerRights owner(backfill_.owner);
  PinSettings();
  PreferIndexes();
  const std::string from = " FROM " + RowsOf(backfill_.relation) + " WHERE ";
  if (Run("SELECT " + key_.Columns() + " FROM (SELECT " + key_.Columns() + from +
          Between(backfill_.last_key) + " ORDER BY " + key_.Columns() + " LIMIT " +
          std::to_string(most) + ") AS p ORDER BY " + key_.Descending() + " LIMIT 1") == 0) {
    return false;
  }
  for (size_t i = 0; i < key_.names().size(); ++i) {
    end_.push_back(PrintedColumn(0, static_cast<int>(i) + 1));
  }
  std::string list;
  columns_.clear();
  for (const std::string& name : NeededColumns()) {
    list += (list.empty() ? "" : ", ") + Quoted(name);
    columns_.push_back(NumberOf(table_, name));
  }
  // Sorted again: a key may have changed before its row was locked.
  size_ = Run("WITH part AS MATERIALIZED (SELECT " + list + from + Between(end_) + " ORDER BY " +
              key_.Columns() + " FOR SHARE) SELECT * FROM part ORDER BY " + key_.Columns());
  rows_ = SPI_tuptable;
  return true;
}

TupleTableSlot* ChunkRows::Row(uint64 number) {
  Pg([&] {
    ExecClearTuple(slot_);
    std::fill_n(slot_->tts_isnull, table_->rd_att->natts, true);
    for (size_t i = 0; i < columns_.size(); ++i) {
      const int place = columns_[i] - 1;
      slot_->tts_values[place] = SPI_getbinval(rows_->vals[number], rows_->tupdesc,
                                               static_cast<int>(i) + 1, &slot_->tts_isnull[place]);
    }
    ExecStoreVirtualTuple(slot_);
  });
  return slot_;
}

KeyTexts ChunkRows::Key() const {
  KeyTexts texts;
  for (const std::string& name : key_.names()) {
    const int place = NumberOf(table_, name) - 1;
    texts.emplace_back(Pg([&]() -> const char* {
      Oid output = InvalidOid;
      bool is_varlena = false;
      getTypeOutputInfo(TupleDescAttr(RelationGetDescr(table_), place)->atttypid, &output,
                        &is_varlena);
      return OidOutputFunctionCall(output, slot_->tts_values[place]);
    }));
  }
  return texts;
}

size_t ChunkRows::Bytes() const {
  return Pg([&] {
    size_t bytes = 0;
    for (const AttrNumber number : columns_) {
      const int place = number - 1;
      if (slot_->tts_isnull[place]) continue;
      const bool is_varlena = TupleDescAttr(RelationGetDescr(table_), place)->attlen == -1;
      bytes += is_varlena ? toast_raw_datum_size(slot_->tts_values[place]) : sizeof(Datum);
    }
    return bytes;
  });
}

void ChunkRows::Close() {
  Pg([&] { ExecDropSingleTupleTableSlot(slot_); });
}

}  // namespace postbox
