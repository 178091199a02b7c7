#include "extension/apply/payload_json.h"

namespace postbox {
namespace {

// As deep as any stack of the server allows its own parser to go.
constexpr size_t kSurelyShallow = 100;

// Lets the server's parser read the text, for its error: that of a text that is no JSON, or is
// nested too deeply for max_stack_depth. What the database's encoding may lack is part of strings
// or of what is no JSON; it is left out, so that there is one error and it can be read.
void RequireJson(std::string_view text, bool valid) {
  char* copy = pnstrdup(text.data(), static_cast<Size>(text.size()));
  if (GetDatabaseEncoding() != PG_UTF8) {
    for (char* at = copy; *at != '\0'; ++at) {
      if (IS_HIGHBIT_SET(*at)) *at = '?';
    }
  }
  DirectFunctionCall1(json_in, CStringGetDatum(copy));
  pfree(copy);
  if (valid) return;
  ereport(ERROR, (errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
                  errmsg("invalid input syntax for type %s", "json")));
}

}  // namespace

const char* JsonKindName(json::Kind kind) {
  switch (kind) {
    case json::Kind::kNull:
      return "null";
    case json::Kind::kBoolean:
      return "a boolean";
    case json::Kind::kNumber:
      return "a number";
    case json::Kind::kString:
      return "a string";
    case json::Kind::kArray:
      return "an array";
    case json::Kind::kObject:
      return "an object";
    default:
      return "absent";
  }
}

std::string_view PayloadJson::Text() {
  if (read_) return text_;
  if (event_.IsNull(EventField::kPayload)) {
    ereport(ERROR,
            (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("event has no payload"),
             errdetail("Columns of a projection are filled from JSON fields of the payload.")));
  }
  bytea* payload = DatumGetByteaPP(event_.Value(EventField::kPayload));
  const int length = static_cast<int>(VARSIZE_ANY_EXHDR(payload));
  // Also refuses zero bytes, so nothing is cut off.
  pg_verify_mbstr(PG_UTF8, VARDATA_ANY(payload), length, false);
  text_ = {VARDATA_ANY(payload), static_cast<size_t>(length)};
  read_ = true;
  return text_;
}

void PayloadJson::Find(const json::Paths& paths, std::vector<json::Value>* values) {
  Pg([&] { Text(); });
  const json::Found found = json::MemberSearch(paths, text_, values).Run();
  if (!found.valid || found.deepest > kSurelyShallow) {
    Pg([&] { RequireJson(text_, found.valid); });
  }
  if (found.kind != json::Kind::kObject) {
    const bool array = found.kind == json::Kind::kArray;
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, "payload is not a JSON object",
          std::string("It is ") + (array ? "an array" : "a scalar") +
              ". Columns of a projection are filled from the fields of an object.");
  }
}

void PayloadJson::Take(size_t bytes) {
  projected_ += bytes;
  if (projected_ <= kMostProjected) return;
  ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                  errmsg("event becomes too large when it is projected"),
                  errdetail("The values for its columns exceed %zu MB. A JSON number is written "
                            "with all its digits: 1e100000 has a hundred thousand.",
                            kMostProjected / (1024 * 1024))));
}

void PayloadJson::TakeAsText(JsonbContainer* container) {
  JsonbIterator* iterator = JsonbIteratorInit(container);
  JsonbValue value;
  JsonbIteratorToken token;
  while ((token = JsonbIteratorNext(&iterator, &value, false)) != WJB_DONE) {
    if (token != WJB_KEY && token != WJB_VALUE && token != WJB_ELEM) continue;
    if (value.type == jbvNumeric) {
      char* text =
          DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(value.val.numeric)));
      Take(std::strlen(text));
      pfree(text);
    } else if (value.type == jbvString) {
      Take(static_cast<size_t>(value.val.string.len) + 4);
    }
  }
}

char* ServerText(std::string_view text) {
  char* copy = pnstrdup(text.data(), static_cast<Size>(text.size()));
  // It is checked to be UTF-8 already.
  if (GetDatabaseEncoding() == PG_UTF8) return copy;
  return pg_any_to_server(copy, static_cast<int>(text.size()), PG_UTF8);
}

char* ServerString(std::string_view quoted) {
  const std::string_view inside = quoted.substr(1, quoted.size() - 2);
  if (inside.find('\\') == std::string_view::npos) return ServerText(inside);
  char* text = static_cast<char*>(palloc(inside.size() + 1));
  const json::Decoded decoded = json::Decode(inside, text);
  if (decoded.flaw != json::TextFlaw::kNone) {
    ereport(ERROR, (errcode(ERRCODE_UNTRANSLATABLE_CHARACTER),
                    errmsg("unsupported Unicode escape sequence"),
                    decoded.flaw == json::TextFlaw::kNul
                        ? errdetail("\\u0000 cannot be converted to text.")
                        : errdetail("A surrogate without its other half is not a character.")));
  }
  text[decoded.length] = '\0';
  if (GetDatabaseEncoding() == PG_UTF8) return text;
  return pg_any_to_server(text, static_cast<int>(decoded.length), PG_UTF8);
}

}  // namespace postbox
