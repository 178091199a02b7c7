#include "extension/apply/projection_key.h"

#include "extension/base/guard.h"

extern "C" {
#include <utils/json.h>
}

namespace postbox {

ProjectionKey::ProjectionKey(const ProjectionColumns& columns, MemoryContext context)
    : target_name_(columns.target_name) {
  for (size_t i = 0; i < columns.key_size; ++i) {
    const ProjectionColumn& column = columns.columns[i];
    columns_.push_back(Pg([&] {
      return Column{MakeColumnInput(column.type, column.typmod, column.source.form, context),
                    MakeKeyForm(column.type, column.collation, context)};
    }));
  }
}

Datum ProjectionKey::Text(const BoundValues& key) {
  return Pg([&]() -> Datum {
    if (columns_.size() == 1) {
      KeyForm& form = columns_[0].form;
      const bool is_text = columns_[0].input.kind == ColumnInput::Kind::kText;
      if (is_text && form.kind == KeyForm::Kind::kOutput) return key.values[0];
      return CStringGetTextDatum(KeyText(&form, key.values[0]));
    }
    StringInfoData text;
    initStringInfo(&text);
    for (size_t i = 0; i < columns_.size(); ++i) {
      appendStringInfoString(&text, i == 0 ? "[" : ", ");
      escape_json(&text, KeyText(&columns_[i].form, key.values[i]));
    }
    appendStringInfoChar(&text, ']');
    return PointerGetDatum(cstring_to_text_with_len(text.data, text.len));
  });
}

std::string_view ProjectionKey::View(const BoundValues& key) {
  const Datum value = Text(key);
  return Pg([&]() -> std::string_view {
    const text* read = DatumGetTextPP(value);
    return {VARDATA_ANY(read), static_cast<size_t>(VARSIZE_ANY_EXHDR(read))};
  });
}

BoundValues ProjectionKey::FromText(std::string_view text) const {
  BoundValues key(columns_.size());
  const std::string copy(text);
  Pg([&] {
    bool null = false;
    if (columns_.size() == 1) {
      ColumnInput input = WithoutState(columns_[0].input);
      key.values[0] = ColumnFromText(&input, pstrdup(copy.c_str()), &null);
      return;
    }
    Jsonb* parts = nullptr;
    if (!copy.empty() && copy[0] == '[') {
      parts = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(copy.c_str())));
    }
    if (parts == nullptr || JB_ROOT_COUNT(parts) != columns_.size()) {
      ereport(ERROR,
              (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid key \"%s\"", copy.c_str()),
               errdetail("The key of %s has %zu columns.", target_name_.c_str(), columns_.size()),
               errhint("Write it as a JSON array, for example [\"eu\", 42].")));
    }
    for (size_t i = 0; i < columns_.size(); ++i) {
      JsonbValue* value = getIthJsonbValueFromContainer(&parts->root, static_cast<uint32>(i));
      ColumnInput input = WithoutState(columns_[i].input);
      key.values[i] = ColumnFromKeyPart(&input, value, &null);
      if (null) {
        ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("key may not be null")));
      }
    }
  });
  return key;
}

}  // namespace postbox
