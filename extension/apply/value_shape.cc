#include "extension/apply/value_shape.h"

#include "extension/apply/payload_json.h"
#include "proto/rules/json_number.h"

extern "C" {
#include <utils/typcache.h>
}

namespace postbox {
namespace {

ValueShape CompositeShape(Oid type, std::vector<Oid>* relations) {
  relations->push_back(Pg([&] { return get_typ_typrelid(type); }));
  struct Attributes {
    int count;
    const char** names;
    Oid* types;
  };
  const Attributes attributes = Pg([&] {
    TupleDesc descriptor = lookup_rowtype_tupdesc(type, -1);
    Attributes found{0, nullptr, nullptr};
    const auto count = static_cast<Size>(descriptor->natts);
    found.names = static_cast<const char**>(palloc(count * sizeof(char*)));
    found.types = static_cast<Oid*>(palloc(count * sizeof(Oid)));
    for (int i = 0; i < descriptor->natts; ++i) {
      Form_pg_attribute attribute = TupleDescAttr(descriptor, i);
      if (attribute->attisdropped) continue;
      found.names[found.count] = pstrdup(NameStr(attribute->attname));
      found.types[found.count++] = attribute->atttypid;
    }
    ReleaseTupleDesc(descriptor);
    return found;
  });
  ValueShape shape;
  for (int i = 0; i < attributes.count; ++i) {
    ValueShape part = ShapeOf(attributes.types[i], relations);
    if (part.kind == ValueShape::Kind::kOther) continue;
    shape.kind = ValueShape::Kind::kComposite;
    part.name = Utf8Text(attributes.names[i]);
    shape.parts.push_back(std::move(part));
  }
  return shape;
}

std::string StringInside(std::string_view quoted) {
  const std::string_view inside = quoted.substr(1, quoted.size() - 2);
  std::string text(inside.size(), '\0');
  text.resize(json::Decode(inside, text.data()).length);
  return text;
}

std::string Shaped(const ValueShape& shape, std::string_view value, int dimensions);

// An array of several dimensions is an array of arrays. One of too many is left as it is, for the
// server to refuse: each level is copied.
std::string ShapedArray(const ValueShape& shape, std::string_view value, int dimensions) {
  if (dimensions > MAXDIM) return std::string(value);
  json::Scanner scanner(value.substr(1));
  std::string text = "[";
  std::string_view element;
  while (json::NextElement(&scanner, &element)) {
    if (text.size() > 1) text += ',';
    const bool inner = element[0] == '[';
    text += Shaped(inner ? shape : shape.parts[0], element, inner ? dimensions + 1 : 1);
  }
  return text + "]";
}

std::string ShapedComposite(const ValueShape& shape, std::string_view value) {
  json::Paths paths;
  for (const ValueShape& part : shape.parts) paths.Add({part.name});
  std::vector<json::Value> values;
  json::MemberSearch(paths, value, &values).Run();
  // What is found lies in the value in any order.
  std::map<const char*, std::pair<std::string_view, std::string>> replaced;
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string_view found = values[i].text;
    if (values[i].kind == json::Kind::kAbsent) continue;
    replaced[found.data()] = {found, ShapedValue(shape.parts[i], found)};
  }
  std::string text;
  const char* at = value.data();
  for (const auto& [begin, change] : replaced) {
    text.append(at, begin).append(change.second);
    at = begin + change.first.size();
  }
  return text.append(at, value.data() + value.size());
}

std::string Shaped(const ValueShape& shape, std::string_view value, int dimensions) {
  Pg([] {
    check_stack_depth();
    CHECK_FOR_INTERRUPTS();
  });
  const json::Kind kind = json::Scanner(value).Peek();
  if (shape.kind == ValueShape::Kind::kWhole && kind == json::Kind::kNumber) {
    char digits[json::kMostDigits + 1];
    const size_t length = json::WriteWhole(value, digits);
    if (length > 0) return {digits, length};
  }
  if (shape.kind == ValueShape::Kind::kBytes && kind != json::Kind::kNull) {
    RequireHexBytes(kind, kind == json::Kind::kString ? StringInside(value) : "");
  }
  if (shape.kind == ValueShape::Kind::kArray && kind == json::Kind::kArray) {
    return ShapedArray(shape, value, dimensions);
  }
  if (shape.kind == ValueShape::Kind::kComposite && kind == json::Kind::kObject) {
    return ShapedComposite(shape, value);
  }
  return std::string(value);
}

}  // namespace

std::string Utf8Text(const std::string& text) {
  return Pg([&]() -> const char* {
    return pg_server_to_any(text.c_str(), static_cast<int>(text.size()), PG_UTF8);
  });
}

ValueShape ShapeOf(Oid type, std::vector<Oid>* relations) {
  const Oid base = Pg([&] { return getBaseType(type); });
  if (base == INT2OID || base == INT4OID || base == INT8OID) return {ValueShape::Kind::kWhole, {}};
  if (base == BYTEAOID) return {ValueShape::Kind::kBytes, {}};
  const Oid element = Pg([&] { return get_element_type(base); });
  if (OidIsValid(element)) {
    ValueShape part = ShapeOf(element, relations);
    if (part.kind == ValueShape::Kind::kOther) return {};
    ValueShape shape{ValueShape::Kind::kArray, {}};
    shape.parts.push_back(std::move(part));
    return shape;
  }
  if (!Pg([&] { return type_is_rowtype(base); })) return {};
  return CompositeShape(base, relations);
}

void RequireHexBytes(json::Kind kind, std::string_view text) {
  if (kind == json::Kind::kString && text.starts_with("\\x")) return;
  Throw(ERRCODE_INVALID_TEXT_REPRESENTATION,
        kind == json::Kind::kString
            ? "a JSON string for type bytea must begin with \\x"
            : std::string(JsonKindName(kind)) + " is not a value of type bytea",
        "",
        "Name the encoding in the projection's columns: {\"path\": ..., \"as\": \"base64\"}, or "
        "\"hex\".");
}

std::string ShapedValue(const ValueShape& shape, std::string_view value) {
  return Shaped(shape, value, 1);
}

}  // namespace postbox
