#include "worker/emulator/schema/avro_json.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "worker/emulator/rules/invalid.h"
#include "worker/emulator/schema/shallow_json.h"

namespace postbox::emulator {
namespace {

using Json = nlohmann::json;
using Kind = AvroType::Kind;

bool IsInteger(const Json& value, int64_t least, int64_t most) {
  if (value.is_number_unsigned()) return value.get<uint64_t>() <= static_cast<uint64_t>(most);
  return value.is_number_integer() && value.get<int64_t>() >= least && value.get<int64_t>() <= most;
}

// Bytes are a string whose characters, U+0000 to U+00FF, stand for a byte each. -1: it is not.
int64_t BytesOf(const Json& value) {
  if (!value.is_string()) return -1;
  const std::string& text = value.get_ref<const std::string&>();
  int64_t bytes = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0xC4) return -1;  // begins a character above U+00FF
    if ((byte & 0xC0) != 0x80) ++bytes;
  }
  return bytes;
}

class Checker {
 public:
  explicit Checker(AvroJsonForm form) : form_(form) {}

  absl::Status Check(const AvroType& type, const Json& value, int depth) const {
    if (depth > kMaxSchemaDepth) return Invalid("values are nested too deeply");
    switch (type.kind) {
      case Kind::kRecord:
        return Record(type, value, depth);
      case Kind::kArray:
        if (!value.is_array()) return Mismatch(type, value);
        for (const Json& item : value) {
          if (auto s = Check(*type.element, item, depth + 1); !s.ok()) return s;
        }
        return absl::OkStatus();
      case Kind::kMap:
        if (!value.is_object()) return Mismatch(type, value);
        for (const auto& item : value) {
          if (auto s = Check(*type.element, item, depth + 1); !s.ok()) return s;
        }
        return absl::OkStatus();
      case Kind::kUnion:
        return Union(type, value, depth);
      default:
        return Scalar(type, value) ? absl::OkStatus() : Mismatch(type, value);
    }
  }

 private:
  static absl::Status Mismatch(const AvroType& type, const Json& value) {
    return Invalid("there is a JSON ", value.type_name(), " that is not a value of ", type.name);
  }

  static bool Scalar(const AvroType& type, const Json& value) {
    switch (type.kind) {
      case Kind::kNull:
        return value.is_null();
      case Kind::kBoolean:
        return value.is_boolean();
      case Kind::kInt:
        return IsInteger(value, std::numeric_limits<int32_t>::min(),
                         std::numeric_limits<int32_t>::max());
      case Kind::kLong:
        return IsInteger(value, std::numeric_limits<int64_t>::min(),
                         std::numeric_limits<int64_t>::max());
      case Kind::kFloat:
      case Kind::kDouble:
        return value.is_number();
      case Kind::kString:
        return value.is_string();
      case Kind::kBytes:
        return BytesOf(value) >= 0;
      case Kind::kFixed:
        return BytesOf(value) == type.size;
      case Kind::kEnum:
        return value.is_string() &&
               std::find(type.symbols.begin(), type.symbols.end(),
                         value.get_ref<const std::string&>()) != type.symbols.end();
      default:
        return false;
    }
  }

  absl::Status Record(const AvroType& type, const Json& value, int depth) const {
    if (!value.is_object()) return Mismatch(type, value);
    size_t known = 0;
    for (const AvroType::Field& field : type.fields) {
      const auto found = value.find(field.name);
      if (found == value.end()) {
        if (form_ == AvroJsonForm::kDefault && field.has_default) continue;
        return Invalid("field \"", field.name, "\" of ", type.name, " is missing");
      }
      ++known;
      if (auto s = Check(*field.type, *found, depth + 1); !s.ok()) {
        if (s.message().size() > kLongMessage) return s;
        return Invalid("field \"", field.name, "\" of ", type.name, ": ", s.message());
      }
    }
    if (known == value.size()) return absl::OkStatus();
    return Invalid("there is a field that ", type.name, " does not have");
  }

  absl::Status Union(const AvroType& type, const Json& value, int depth) const {
    if (form_ == AvroJsonForm::kDefault) {
      if (type.branches.empty()) return Mismatch(type, value);
      return Check(*type.branches.front(), value, depth + 1);
    }
    const bool tagged = value.is_object() && value.size() == 1;
    if (!tagged && !value.is_null()) {
      return Invalid("a value of a union must be null or an object with the name of its branch");
    }
    const std::string branch = tagged ? value.begin().key() : "null";
    for (const AvroType* each : type.branches) {
      if (each->name != branch || (tagged && each->kind == Kind::kNull)) continue;
      return Check(*each, tagged ? *value.begin() : value, depth + 1);
    }
    return Invalid("a union has no branch \"", branch, "\"");
  }

  const AvroJsonForm form_;
};

}  // namespace

absl::Status CheckAvroJson(const AvroType& type, const Json& value, AvroJsonForm form) {
  return Checker(form).Check(type, value, 0);
}

absl::Status CheckAvroJson(const AvroType& type, absl::string_view data) {
  Json value;
  if (auto s = ParseShallowJson(data, &value); !s.ok()) return s;
  return CheckAvroJson(type, value, AvroJsonForm::kMessage);
}

}  // namespace postbox::emulator
