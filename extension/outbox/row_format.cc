#include "extension/outbox/row_format.h"

#include "extension/base/relation.h"

extern "C" {
#include <executor/tuptable.h>
#include <utils/datum.h>
#include <utils/fmgrprotos.h>
}

namespace postbox {
namespace {

AttrNumber FindColumn(Relation table, const std::string& name) {
  const TupleDesc columns = RelationGetDescr(table);
  for (int i = 0; i < columns->natts; ++i) {
    const FormData_pg_attribute* column = TupleDescAttr(columns, i);
    if (!column->attisdropped && name == NameStr(column->attname)) return column->attnum;
  }
  Throw(ERRCODE_UNDEFINED_COLUMN,
        "column " + Quoted(name) + " of relation " + Quoted(RelationGetRelationName(table)) +
            " does not exist",
        "An argument of the trigger that calls emit_changes() names it.",
        "Make the triggers again with postbox.drop_change_triggers and "
        "postbox.create_change_triggers.");
}

std::vector<std::string> AllColumns(Relation table) {
  std::vector<std::string> names;
  const TupleDesc columns = RelationGetDescr(table);
  for (int i = 0; i < columns->natts; ++i) {
    const FormData_pg_attribute* column = TupleDescAttr(columns, i);
    if (!column->attisdropped) names.emplace_back(NameStr(column->attname));
  }
  return names;
}

void AppendEscaped(StringInfo to, const char* value) {
  for (; *value != '\0'; ++value) {
    if (*value == ':' || *value == '\\') appendStringInfoChar(to, '\\');
    appendStringInfoChar(to, *value);
  }
}

}  // namespace

RowFormat::RowFormat(Relation table, const std::vector<std::string>& key,
                     const std::vector<std::string>& payload) {
  const TupleDesc columns = RelationGetDescr(table);
  key_columns_ = static_cast<int>(key.size());
  key_ = static_cast<Column*>(Pg([&] { return palloc0(sizeof(Column) * key_columns_); }));
  for (int i = 0; i < key_columns_; ++i) {
    Column& column = key_[i];
    column.number = FindColumn(table, key[i]);
    key_names_ += (i == 0 ? "" : ", ") + Quoted(key[i]);
    Pg([&] {
      Oid output = InvalidOid;
      bool is_varlena = false;
      getTypeOutputInfo(TupleDescAttr(columns, column.number - 1)->atttypid, &output, &is_varlena);
      fmgr_info(output, &column.output);
    });
  }
  const std::vector<std::string> names = payload.empty() ? AllColumns(table) : payload;
  const int count = static_cast<int>(names.size());
  payload_ = static_cast<AttrNumber*>(Pg([&] { return palloc(sizeof(AttrNumber) * (count + 1)); }));
  for (int i = 0; i < count; ++i) payload_[i] = FindColumn(table, names[i]);
  payload_type_ = Pg([&] {
    TupleDesc type = CreateTemplateTupleDesc(count);
    for (int i = 0; i < count; ++i) {
      TupleDescCopyEntry(type, static_cast<AttrNumber>(i + 1), columns, payload_[i]);
    }
    return BlessTupleDesc(type);
  });
}

std::optional<Datum> RowFormat::Key(TupleTableSlot* row) {
  const Datum key = Pg([&]() -> Datum {
    if (key_columns_ == 1) {
      bool null = false;
      const Datum value = slot_getattr(row, key_->number, &null);
      if (null) return 0;
      return PointerGetDatum(cstring_to_text(OutputFunctionCall(&key_->output, value)));
    }
    StringInfoData text;
    initStringInfo(&text);
    for (int i = 0; i < key_columns_; ++i) {
      bool null = false;
      const Datum value = slot_getattr(row, key_[i].number, &null);
      if (null) return 0;
      if (i > 0) appendStringInfoChar(&text, ':');
      AppendEscaped(&text, OutputFunctionCall(&key_[i].output, value));
    }
    return PointerGetDatum(cstring_to_text_with_len(text.data, text.len));
  });
  if (key == 0) return std::nullopt;
  return key;
}

Datum RowFormat::Payload(TupleTableSlot* row) {
  return Pg([&] {
    slot_getallattrs(row);
    const int count = payload_type_->natts;
    auto* values = static_cast<Datum*>(palloc(sizeof(Datum) * (count + 1)));
    auto* nulls = static_cast<bool*>(palloc(sizeof(bool) * (count + 1)));
    for (int i = 0; i < count; ++i) {
      values[i] = row->tts_values[payload_[i] - 1];
      nulls[i] = row->tts_isnull[payload_[i] - 1];
    }
    HeapTuple record = heap_form_tuple(payload_type_, values, nulls);
    const Datum json = DirectFunctionCall1(row_to_json, HeapTupleGetDatum(record));
    if (GetDatabaseEncoding() == PG_UTF8) return json;
    const char* server = TextDatumGetCString(json);
    return PointerGetDatum(
        cstring_to_text(pg_server_to_any(server, static_cast<int>(std::strlen(server)), PG_UTF8)));
  });
}

bool RowFormat::HaveSamePayload(TupleTableSlot* one, TupleTableSlot* other) {
  return Pg([&] {
    slot_getallattrs(one);
    slot_getallattrs(other);
    for (int i = 0; i < payload_type_->natts; ++i) {
      const FormData_pg_attribute* column = TupleDescAttr(payload_type_, i);
      const int place = payload_[i] - 1;
      if (one->tts_isnull[place] != other->tts_isnull[place]) return false;
      if (!one->tts_isnull[place] &&
          !datum_image_eq(one->tts_values[place], other->tts_values[place], column->attbyval,
                          column->attlen)) {
        return false;
      }
    }
    return true;
  });
}

}  // namespace postbox
