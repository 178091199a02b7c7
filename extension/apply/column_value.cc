#include "extension/apply/column_value.h"

#include "proto/rules/json_number.h"

extern "C" {
#include <utils/fmgroids.h>
#include <utils/fmgrprotos.h>
#include <utils/typcache.h>
}

namespace postbox {
namespace {

// A JSON number as text: with all its digits, as numeric shows it.
char* NumberText(std::string_view number) {
  char* text = pnstrdup(number.data(), static_cast<Size>(number.size()));
  if (number.find_first_of("eE") == std::string_view::npos && !number.starts_with("-0")) {
    return text;
  }
  const Datum value = DirectFunctionCall3(numeric_in, CStringGetDatum(text),
                                          ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
  return DatumGetCString(DirectFunctionCall1(numeric_out, value));
}

bool IsWholeType(Oid base_type) {
  return base_type == INT2OID || base_type == INT4OID || base_type == INT8OID;
}

// Null if the number is not whole: the type says what it has against it.
char* WholeText(std::string_view number) {
  char digits[json::kMostDigits + 1];
  const size_t length = json::WriteWhole(number, digits);
  return length == 0 ? nullptr : pnstrdup(digits, length);
}

// A JSON value as the text that the type's input function reads.
char* InputText(const ColumnInput& input, const json::Value& value) {
  if (value.kind == json::Kind::kString) return ServerString(value.text);
  if (value.kind != json::Kind::kNumber) return ServerText(value.text);
  char* whole = IsWholeType(input.base_type) ? WholeText(value.text) : nullptr;
  return whole != nullptr ? whole : NumberText(value.text);
}

Datum StructuredValue(const ColumnInput* input, const json::Value& value, PayloadJson* payload,
                      bool* null) {
  StringInfoData text;
  initStringInfo(&text);
  appendStringInfoString(&text, "{\"v\":");
  appendStringInfoString(&text, ServerText(value.text));
  appendStringInfoChar(&text, '}');
  Jsonb* json = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(text.data)));
  payload->TakeAsText(&json->root);

  ReturnSetInfo wanted{};
  wanted.type = T_ReturnSetInfo;
  wanted.expectedDesc = input->record;
  // Its state would keep the attributes of composite types, to which ALTER TYPE may add some.
  ColumnInput fresh = WithoutState(*input);
  LOCAL_FCINFO(call, 1);
  InitFunctionCallInfoData(*call, &fresh.function, 1, InvalidOid, nullptr,
                           reinterpret_cast<fmNodePtr>(&wanted));
  call->args[0].value = JsonbPGetDatum(json);
  call->args[0].isnull = false;
  const Datum record = FunctionCallInvoke(call);
  HeapTupleHeader header = DatumGetHeapTupleHeader(record);
  HeapTupleData tuple{};
  tuple.t_len = HeapTupleHeaderGetDatumLength(header);
  ItemPointerSetInvalid(&tuple.t_self);
  tuple.t_tableOid = InvalidOid;
  tuple.t_data = header;
  return heap_getattr(&tuple, 1, input->record, null);
}

TupleDesc RecordOf(Oid type, int32 typmod, MemoryContext context) {
  MemoryContext outer = MemoryContextSwitchTo(context);
  TupleDesc record = CreateTemplateTupleDesc(1);
  TupleDescInitEntry(record, 1, "v", type, typmod, 0);
  MemoryContextSwitchTo(outer);
  return record;
}

}  // namespace

bool IsStructured(Oid type) {
  const Oid base = getBaseType(type);
  const bool json = base == JSONBOID || base == JSONOID;
  return OidIsValid(get_element_type(base)) || type_is_rowtype(base) || (json && base != type);
}

ColumnInput MakeColumnInput(Oid type, int32 typmod, ValueForm form, MemoryContext context) {
  ColumnInput input{};
  input.type = type;
  input.form = form;
  input.typmod = typmod;
  input.base_type = getBaseTypeAndTypmod(type, &input.typmod);
  input.domain = input.base_type != type;
  input.structured = IsStructured(type);
  input.kind = ColumnInput::Kind::kOther;
  if (input.structured) {
    fmgr_info_cxt(F_JSONB_TO_RECORD, &input.function, context);
    input.record = RecordOf(type, typmod, context);
    return input;
  }
  if (!input.domain) {
    if ((type == TEXTOID || type == VARCHAROID) && typmod < 0) {
      input.kind = ColumnInput::Kind::kText;
    }
    if (type == JSONBOID) input.kind = ColumnInput::Kind::kJsonb;
    if (type == JSONOID) input.kind = ColumnInput::Kind::kJson;
  }
  Oid function;
  getTypeInputInfo(type, &function, &input.io_parameter);
  fmgr_info_cxt(function, &input.function, context);
  return input;
}

ColumnInput WithoutState(const ColumnInput& input) {
  ColumnInput own = input;
  own.function.fn_extra = nullptr;
  own.function.fn_mcxt = CurrentMemoryContext;
  return own;
}

namespace {

// Types whose equal values have one text. All others have a hash function, or are taken at their
// word.
bool HasOneText(Oid type) {
  switch (type) {
    case BOOLOID:
    case CHAROID:
    case INT2OID:
    case INT4OID:
    case INT8OID:
    case OIDOID:
    case UUIDOID:
    case BYTEAOID:
    case DATEOID:
    case TIMEOID:
    case TIMESTAMPOID:
    case TIMESTAMPTZOID:
    case INETOID:
    case CIDROID:
    case MACADDROID:
      return true;
    default:
      return get_typtype(type) == TYPTYPE_ENUM;
  }
}

KeyForm::Kind KeyFormOf(Oid type, Oid collation, const TypeCacheEntry* hash) {
  const bool exact = HasExactText(type, collation);
  if (type == NUMERICOID) return KeyForm::Kind::kTrimScale;
  if (exact && type == BPCHAROID) return KeyForm::Kind::kTrimPadding;
  if (exact || !OidIsValid(hash->hash_extended_proc)) return KeyForm::Kind::kOutput;
  if (type == NAMEOID) return KeyForm::Kind::kTextHash;
  return KeyForm::Kind::kHash;
}

char* HashText(Datum hash) { return psprintf("#%016" PRIx64, DatumGetUInt64(hash)); }

}  // namespace

bool HasExactText(Oid type, Oid collation) {
  if (type == NUMERICOID) return true;
  if (type == TEXTOID || type == VARCHAROID || type == BPCHAROID || type == NAMEOID) {
    return !OidIsValid(collation) || get_collation_isdeterministic(collation);
  }
  return HasOneText(type);
}

KeyForm MakeKeyForm(Oid type, Oid collation, MemoryContext context) {
  const Oid base = getBaseType(type);
  const TypeCacheEntry* hash = lookup_type_cache(base, TYPECACHE_HASH_EXTENDED_PROC);
  KeyForm form{};
  form.kind = KeyFormOf(base, collation, hash);
  form.collation = collation;
  Oid output;
  bool varlena;
  getTypeOutputInfo(type, &output, &varlena);
  fmgr_info_cxt(form.kind == KeyForm::Kind::kHash ? hash->hash_extended_proc : output,
                &form.function, context);
  return form;
}

char* KeyText(KeyForm* form, Datum value) {
  if (form->kind == KeyForm::Kind::kHash) {
    return HashText(FunctionCall2Coll(&form->function, form->collation, value, UInt64GetDatum(0)));
  }
  if (form->kind == KeyForm::Kind::kTrimScale) {
    value = DirectFunctionCall1(numeric_trim_scale, value);
  }
  char* text = OutputFunctionCall(&form->function, value);
  if (form->kind == KeyForm::Kind::kTextHash) {
    return HashText(DirectFunctionCall2Coll(hashtextextended, form->collation,
                                            CStringGetTextDatum(text), UInt64GetDatum(0)));
  }
  if (form->kind == KeyForm::Kind::kTrimPadding) {
    size_t length = std::strlen(text);
    while (length > 0 && text[length - 1] == ' ') --length;
    text[length] = '\0';
  }
  return text;
}

Datum ColumnFromText(ColumnInput* input, char* text, bool* null) {
  *null = text == nullptr;
  if (text == nullptr) {
    // A domain may refuse NULL.
    if (!input->domain) return Datum{0};
    if (!input->structured) {
      return InputFunctionCall(&input->function, nullptr, input->io_parameter, -1);
    }
    domain_check(Datum{0}, true, input->type, nullptr, CurrentMemoryContext);
    return Datum{0};
  }
  if (input->kind == ColumnInput::Kind::kText) return CStringGetTextDatum(text);
  // A domain applies the modifier of its base type by itself.
  return InputFunctionCall(&input->function, text, input->io_parameter,
                           input->domain ? -1 : input->typmod);
}

Datum ColumnFromJson(ColumnInput* input, const json::Value& value, PayloadJson* payload,
                     bool* null) {
  if (value.kind == json::Kind::kNull) return ColumnFromText(input, nullptr, null);
  *null = false;
  payload->Take(value.text.size());
  if (input->structured) return StructuredValue(input, value, payload, null);
  if (input->kind == ColumnInput::Kind::kJson) return CStringGetTextDatum(ServerText(value.text));
  if (input->kind == ColumnInput::Kind::kJsonb) {
    return DirectFunctionCall1(jsonb_in, CStringGetDatum(ServerText(value.text)));
  }
  if (input->form != ValueForm::kPlain) {
    const bool string = value.kind == json::Kind::kString;
    const Datum made = ValueInForm(input->form, input->base_type, input->typmod, value,
                                   string ? ServerString(value.text) : nullptr);
    if (input->domain) domain_check(made, false, input->type, nullptr, CurrentMemoryContext);
    return made;
  }
  char* text = InputText(*input, value);
  if (value.kind == json::Kind::kNumber) payload->Take(std::strlen(text));
  return ColumnFromText(input, text, null);
}

Datum ColumnFromKeyPart(ColumnInput* input, JsonbValue* value, bool* null) {
  if (value->type == jbvNull) return ColumnFromText(input, nullptr, null);
  *null = false;
  if (input->kind == ColumnInput::Kind::kJsonb) return JsonbPGetDatum(JsonbValueToJsonb(value));
  if (value->type == jbvString) {
    return ColumnFromText(input, pnstrdup(value->val.string.val, value->val.string.len), null);
  }
  if (value->type == jbvNumeric) {
    const Datum number = NumericGetDatum(value->val.numeric);
    return ColumnFromText(input, DatumGetCString(DirectFunctionCall1(numeric_out, number)), null);
  }
  Jsonb* json = JsonbValueToJsonb(value);
  return ColumnFromText(input, JsonbToCString(nullptr, &json->root, VARSIZE(json)), null);
}

Datum ColumnFromEvent(ColumnInput* input, EventField field, const InboxEvent& event,
                      PayloadJson* payload, bool* null) {
  if (event.IsNull(field)) return ColumnFromText(input, nullptr, null);
  *null = false;
  const Oid type = EventFieldType(field);
  const Datum value = event.Value(field);
  if (type == input->type || (type == TEXTOID && input->kind == ColumnInput::Kind::kText)) {
    return value;
  }
  if (field == EventField::kPayload) {
    const std::string_view text = payload->Text();
    payload->Take(text.size());
    return ColumnFromText(input, ServerText(text), null);
  }
  if (field == EventField::kAttributes) payload->TakeAsText(&DatumGetJsonbP(value)->root);
  Oid output;
  bool varlena;
  getTypeOutputInfo(type, &output, &varlena);
  return ColumnFromText(input, OidOutputFunctionCall(output, value), null);
}

}  // namespace postbox
