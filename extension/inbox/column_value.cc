#include "extension/inbox/column_value.h"

extern "C" {
#include <access/detoast.h>
#include <utils/typcache.h>
}

namespace postbox {
namespace {

char* NumberText(Numeric number) {
  return DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(number)));
}

// JSON as text, as `::text` shows it.
char* JsonText(JsonbValue* value) {
  if (value->type == jbvBinary) {
    return JsonbToCString(nullptr, value->val.binary.data, value->val.binary.len);
  }
  Jsonb* document = JsonbValueToJsonb(value);
  return JsonbToCString(nullptr, &document->root, VARSIZE(document));
}

// A JSON scalar as the text that the type's input function reads.
char* ScalarText(JsonbValue* value) {
  switch (value->type) {
    case jbvString:
      return pnstrdup(value->val.string.val, value->val.string.len);
    case jbvNumeric:
      return NumberText(value->val.numeric);
    case jbvBool:
      return pstrdup(value->val.boolean ? "true" : "false");
    default:
      return JsonText(value);
  }
}

const char* JsonTypeName(const Jsonb* document) {
  if (JB_ROOT_IS_SCALAR(document)) return "a scalar";
  if (JB_ROOT_IS_ARRAY(document)) return "an array";
  return "an object";
}

// {"v": value}, what jsonb_to_record takes the value from.
Datum Structured(JsonbValue* value) {
  char name[] = "v";
  JsonbObject object;
  JsonbValue key;
  key.type = jbvString;
  key.val.string.val = name;
  key.val.string.len = 1;
  object.Push(WJB_KEY, &key);
  object.Push(WJB_VALUE, value);
  return JsonbPGetDatum(object.Finish());
}

// The payload in the encoding of the database, ended by a zero byte.
char* PayloadText(const InboxEvent& event) {
  if (event.IsNull(EventField::kPayload)) {
    ereport(ERROR,
            (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("event has no payload"),
             errdetail("Columns of a projection are filled from JSON fields of the payload.")));
  }
  bytea* payload = DatumGetByteaPP(event.Value(EventField::kPayload));
  const int length = static_cast<int>(VARSIZE_ANY_EXHDR(payload));
  char* text = pnstrdup(VARDATA_ANY(payload), length);
  // Also refuses zero bytes, so nothing is cut off.
  return pg_any_to_server(text, length, PG_UTF8);
}

}  // namespace

bool IsStructured(Oid type) {
  const Oid base = getBaseType(type);
  const bool json = base == JSONBOID || base == JSONOID;
  return OidIsValid(get_element_type(base)) || type_is_rowtype(base) || (json && base != type);
}

ColumnInput MakeColumnInput(Oid type, MemoryContext context) {
  ColumnInput input{};
  input.type = type;
  const Oid base = getBaseType(type);
  input.domain = base != type;
  input.structured = IsStructured(type);
  input.kind = ColumnInput::Kind::kOther;
  if (!input.domain) {
    if (type == TEXTOID || type == VARCHAROID) input.kind = ColumnInput::Kind::kText;
    if (type == JSONBOID) input.kind = ColumnInput::Kind::kJsonb;
    if (type == JSONOID) input.kind = ColumnInput::Kind::kJson;
  }
  Oid function;
  getTypeInputInfo(type, &function, &input.io_parameter);
  fmgr_info_cxt(function, &input.function, context);
  return input;
}

namespace {

// Types whose equal values have one text. All others have a hash function, or are taken at their
// word.
bool HasOneText(Oid type) {
  switch (type) {
    case BOOLOID:
    case CHAROID:
    case NAMEOID:
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
  const bool ordinary = !OidIsValid(collation) || get_collation_isdeterministic(collation);
  if (type == NUMERICOID) return KeyForm::Kind::kTrimScale;
  if (ordinary && type == BPCHAROID) return KeyForm::Kind::kTrimPadding;
  if (ordinary && (type == TEXTOID || type == VARCHAROID)) return KeyForm::Kind::kOutput;
  if (HasOneText(type) || !OidIsValid(hash->hash_extended_proc)) return KeyForm::Kind::kOutput;
  return KeyForm::Kind::kHash;
}

}  // namespace

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
    const Datum hash =
        FunctionCall2Coll(&form->function, form->collation, value, UInt64GetDatum(0));
    return psprintf("#%016" PRIx64, DatumGetUInt64(hash));
  }
  if (form->kind == KeyForm::Kind::kTrimScale) {
    value = DirectFunctionCall1(numeric_trim_scale, value);
  }
  char* text = OutputFunctionCall(&form->function, value);
  if (form->kind == KeyForm::Kind::kTrimPadding) {
    size_t length = std::strlen(text);
    while (length > 0 && text[length - 1] == ' ') --length;
    text[length] = '\0';
  }
  return text;
}

Jsonb* PayloadJson::Document() {
  if (document_ == nullptr) {
    char* text = PayloadText(event_);
    document_ = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(text)));
  }
  return document_;
}

void PayloadJson::Take(size_t bytes) {
  projected_ += bytes;
  if (projected_ <= kMostProjected) return;
  ereport(ERROR,
          (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
           errmsg("event becomes too large when it is projected"),
           errdetail("The values of its columns have more than %zu MB. As text, a JSON number has "
                     "all its digits: 1e100000 has a hundred thousand.",
                     kMostProjected / (1024 * 1024))));
}

void PayloadJson::TakeAsText(JsonbContainer* container) {
  JsonbIterator* iterator = JsonbIteratorInit(container);
  JsonbValue value;
  JsonbIteratorToken token;
  while ((token = JsonbIteratorNext(&iterator, &value, false)) != WJB_DONE) {
    if (token != WJB_KEY && token != WJB_VALUE && token != WJB_ELEM) continue;
    if (value.type == jbvNumeric) {
      char* text = NumberText(value.val.numeric);
      Take(std::strlen(text));
      pfree(text);
    } else if (value.type == jbvString) {
      Take(static_cast<size_t>(value.val.string.len) + 4);
    }
  }
}

bool PayloadJson::Find(const std::vector<std::string>& path, JsonbValue* value) {
  Jsonb* document = Document();
  if (!JB_ROOT_IS_OBJECT(document)) {
    ereport(ERROR,
            (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("payload is not a JSON object"),
             errdetail("It is %s. Columns of a projection are filled from the fields of an object.",
                       JsonTypeName(document))));
  }
  JsonbContainer* container = &document->root;
  for (size_t i = 0; i < path.size(); ++i) {
    if (!JsonContainerIsObject(container)) return false;
    if (getKeyJsonValueFromContainer(container, path[i].data(), static_cast<int>(path[i].size()),
                                     value) == nullptr) {
      return false;
    }
    if (i + 1 < path.size()) {
      if (value->type != jbvBinary) return false;
      container = value->val.binary.data;
    }
  }
  return true;
}

Datum ColumnFromText(ColumnInput* input, char* text, bool* null) {
  *null = text == nullptr;
  // The input function of a domain sees NULL too: the domain may refuse it.
  if (text == nullptr && !input->domain) return Datum{0};
  if (text != nullptr && input->kind == ColumnInput::Kind::kText) return CStringGetTextDatum(text);
  return InputFunctionCall(&input->function, text, input->io_parameter, -1);
}

namespace {

// Before a JSON value is made a text, or an array in SQL.
void TakeJson(JsonbValue* value, PayloadJson* payload) {
  if (value->type == jbvBinary) payload->TakeAsText(value->val.binary.data);
  if (value->type == jbvString) payload->Take(static_cast<size_t>(value->val.string.len));
}

}  // namespace

Datum ColumnFromJson(ColumnInput* input, JsonbValue* value, PayloadJson* payload, bool* null) {
  *null = false;
  if (input->kind == ColumnInput::Kind::kJsonb && !input->structured && value->type != jbvNull) {
    Jsonb* document = JsonbValueToJsonb(value);
    payload->Take(VARSIZE(document));
    return JsonbPGetDatum(document);
  }
  TakeJson(value, payload);
  if (input->structured) return Structured(value);
  if (value->type == jbvNull) return ColumnFromText(input, nullptr, null);
  if (input->kind == ColumnInput::Kind::kJson) return CStringGetTextDatum(JsonText(value));
  if (input->kind == ColumnInput::Kind::kText && value->type == jbvString) {
    return PointerGetDatum(cstring_to_text_with_len(value->val.string.val, value->val.string.len));
  }
  char* text = ScalarText(value);
  if (value->type == jbvNumeric) payload->Take(std::strlen(text));
  return ColumnFromText(input, text, null);
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
    payload->Take(toast_raw_datum_size(value));
    if (input->kind == ColumnInput::Kind::kJsonb) return JsonbPGetDatum(payload->Document());
    return ColumnFromText(input, PayloadText(event), null);
  }
  if (field == EventField::kAttributes) payload->TakeAsText(&DatumGetJsonbP(value)->root);
  Oid output;
  bool varlena;
  getTypeOutputInfo(type, &output, &varlena);
  return ColumnFromText(input, OidOutputFunctionCall(output, value), null);
}

}  // namespace postbox
