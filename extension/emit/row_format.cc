#include "extension/emit/row_format.h"

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
        "Create the triggers again with postbox.drop_change_triggers and "
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

// Whether a column of two rows, whose columns have been read, has the same bytes.
bool IsSameColumn(TupleTableSlot* one, TupleTableSlot* other, AttrNumber number) {
  const int place = number - 1;
  if (one->tts_isnull[place] || other->tts_isnull[place]) {
    return one->tts_isnull[place] && other->tts_isnull[place];
  }
  const FormData_pg_attribute* column = TupleDescAttr(one->tts_tupleDescriptor, place);
  return datum_image_eq(one->tts_values[place], other->tts_values[place], column->attbyval,
                        column->attlen);
}

}  // namespace

RowFormat::RowFormat(Relation table, const std::vector<std::string>& key,
                     const std::vector<std::string>& payload) {
  AddKey(table, key);
  AddPayload(table, payload.empty() ? AllColumns(table) : payload);
}

void RowFormat::AddKey(Relation table, const std::vector<std::string>& key) {
  key_ = {
      static_cast<KeyColumn*>(memory_.Pg([&] { return palloc0(sizeof(KeyColumn) * key.size()); })),
      key.size()};
  for (size_t i = 0; i < key.size(); ++i) {
    KeyColumn& column = key_[i];
    column.number = FindColumn(table, key[i]);
    key_names_ += (i == 0 ? "" : ", ") + Quoted(key[i]);
    const Oid type = TupleDescAttr(RelationGetDescr(table), column.number - 1)->atttypid;
    Pg([&] {
      Oid output = InvalidOid;
      bool is_varlena = false;
      getTypeOutputInfo(type, &output, &is_varlena);
      fmgr_info_cxt(output, &column.output, memory_.context());
      if (!HasFixedText(JsonKindOf(type))) needs_settings_ = true;
    });
  }
}

void RowFormat::AddPayload(Relation table, const std::vector<std::string>& names) {
  const size_t count = names.size();
  payload_ = {
      static_cast<Member*>(memory_.Pg([&] { return palloc0(sizeof(Member) * (count + 1)); })),
      count};
  for (size_t i = 0; i < count; ++i) payload_[i].number = FindColumn(table, names[i]);
  payload_type_ = memory_.Pg([&] {
    const TupleDesc columns = RelationGetDescr(table);
    TupleDesc type = CreateTemplateTupleDesc(static_cast<int>(count));
    for (size_t i = 0; i < count; ++i) {
      Member& member = payload_[i];
      TupleDescCopyEntry(type, static_cast<AttrNumber>(i + 1), columns, member.number);
      const FormData_pg_attribute* column = TupleDescAttr(columns, member.number - 1);
      member.kind = JsonKindOf(column->atttypid);
      if (member.kind == JsonKind::kOther) has_other_ = needs_settings_ = true;
      StringInfoData name;
      initStringInfo(&name);
      AppendJsonString(&name, NameStr(column->attname));
      appendStringInfoChar(&name, ':');
      member.name = {name.data, static_cast<size_t>(name.len)};
    }
    initStringInfo(&written_);
    return BlessTupleDesc(type);
  });
}

std::optional<Datum> RowFormat::Key(TupleTableSlot* row) {
  const Datum key = Pg([&]() -> Datum {
    if (key_.size() == 1) {
      bool null = false;
      const Datum value = slot_getattr(row, key_[0].number, &null);
      if (null) return 0;
      return PointerGetDatum(cstring_to_text(OutputFunctionCall(&key_[0].output, value)));
    }
    StringInfoData text;
    initStringInfo(&text);
    for (KeyColumn& column : key_) {
      bool null = false;
      const Datum value = slot_getattr(row, column.number, &null);
      if (null) return 0;
      if (&column != key_.data()) appendStringInfoChar(&text, ':');
      AppendEscaped(&text, OutputFunctionCall(&column.output, value));
    }
    return PointerGetDatum(cstring_to_text_with_len(text.data, text.len));
  });
  if (key == 0) return std::nullopt;
  return key;
}

// As RowToJson() writes it, where no member is of kOther.
text* RowFormat::WriteJson(TupleTableSlot* row) {
  constexpr int kKeptBytes = 64 * 1024;
  resetStringInfo(&written_);
  char before = '{';
  for (const Member& member : payload_) {
    appendStringInfoChar(&written_, before);
    before = ',';
    appendBinaryStringInfo(&written_, member.name.data(), static_cast<int>(member.name.size()));
    const int place = member.number - 1;
    if (row->tts_isnull[place]) {
      appendStringInfoString(&written_, "null");
    } else {
      AppendJson(&written_, member.kind, row->tts_values[place]);
    }
  }
  appendStringInfoString(&written_, payload_.empty() ? "{}" : "}");
  text* json = cstring_to_text_with_len(written_.data, written_.len);
  if (written_.maxlen > kKeptBytes) {
    pfree(written_.data);
    const MemoryContext current = MemoryContextSwitchTo(memory_.context());
    initStringInfo(&written_);
    MemoryContextSwitchTo(current);
  }
  return json;
}

text* RowFormat::RowToJson(TupleTableSlot* row) const {
  const size_t count = payload_.size();
  auto* values = static_cast<Datum*>(palloc(sizeof(Datum) * (count + 1)));
  auto* nulls = static_cast<bool*>(palloc(sizeof(bool) * (count + 1)));
  for (size_t i = 0; i < count; ++i) {
    values[i] = row->tts_values[payload_[i].number - 1];
    nulls[i] = row->tts_isnull[payload_[i].number - 1];
  }
  HeapTuple record = heap_form_tuple(payload_type_, values, nulls);
  return DatumGetTextPP(DirectFunctionCall1(row_to_json, HeapTupleGetDatum(record)));
}

Datum RowFormat::Payload(TupleTableSlot* row) {
  return Pg([&] {
    slot_getallattrs(row);
    text* json = has_other_ ? RowToJson(row) : WriteJson(row);
    if (GetDatabaseEncoding() == PG_UTF8) return PointerGetDatum(json);
    const char* server = text_to_cstring(json);
    return PointerGetDatum(
        cstring_to_text(pg_server_to_any(server, static_cast<int>(std::strlen(server)), PG_UTF8)));
  });
}

bool RowFormat::AreKeysAlike(TupleTableSlot* one, TupleTableSlot* other) {
  return Pg([&] {
    slot_getallattrs(one);
    slot_getallattrs(other);
    return std::all_of(key_.begin(), key_.end(), [&](const KeyColumn& column) {
      return IsSameColumn(one, other, column.number);
    });
  });
}

bool RowFormat::HaveSamePayload(TupleTableSlot* one, TupleTableSlot* other) {
  return Pg([&] {
    slot_getallattrs(one);
    slot_getallattrs(other);
    return std::all_of(payload_.begin(), payload_.end(), [&](const Member& member) {
      return IsSameColumn(one, other, member.number);
    });
  });
}

}  // namespace postbox
