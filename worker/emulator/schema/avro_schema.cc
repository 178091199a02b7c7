#include "worker/emulator/schema/avro_schema.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "worker/emulator/rules/invalid.h"
#include "worker/emulator/schema/avro_json.h"
#include "worker/emulator/schema/shallow_json.h"

namespace postbox::emulator {

using Json = nlohmann::json;
using Kind = AvroType::Kind;

namespace {

std::optional<Kind> PrimitiveOf(absl::string_view name) {
  static const auto& primitives = *new std::map<absl::string_view, Kind>{
      {"null", Kind::kNull},   {"boolean", Kind::kBoolean}, {"int", Kind::kInt},
      {"long", Kind::kLong},   {"float", Kind::kFloat},     {"double", Kind::kDouble},
      {"bytes", Kind::kBytes}, {"string", Kind::kString},
  };
  const auto found = primitives.find(name);
  if (found == primitives.end()) return std::nullopt;
  return found->second;
}

bool IsSimpleName(absl::string_view name) {
  if (name.empty() || absl::ascii_isdigit(static_cast<unsigned char>(name[0]))) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return c == '_' || absl::ascii_isalnum(static_cast<unsigned char>(c));
  });
}

bool IsFullName(absl::string_view name) {
  for (const absl::string_view part : absl::StrSplit(name, '.')) {
    if (!IsSimpleName(part)) return false;
  }
  return true;
}

std::string SpaceOf(const std::string& full_name) {
  const size_t dot = full_name.rfind('.');
  return dot == std::string::npos ? "" : full_name.substr(0, dot);
}

std::string Qualify(const std::string& name, const std::string& space) {
  return name.find('.') != std::string::npos || space.empty() ? name
                                                              : absl::StrCat(space, ".", name);
}

absl::StatusOr<std::string> Text(const Json& object, const char* attribute) {
  const auto found = object.find(attribute);
  if (found == object.end()) return Invalid("a type or field has no \"", attribute, "\"");
  if (!found->is_string()) return Invalid("\"", attribute, "\" must be a string");
  return found->get<std::string>();
}

absl::StatusOr<std::vector<std::string>> Aliases(const Json& object) {
  std::vector<std::string> aliases;
  const auto found = object.find("aliases");
  if (found == object.end()) return aliases;
  if (!found->is_array()) return Invalid("\"aliases\" must be an array");
  for (const Json& alias : *found) {
    if (!alias.is_string() || !IsFullName(alias.get<std::string>())) {
      return Invalid("\"aliases\" must be names");
    }
    aliases.push_back(alias.get<std::string>());
  }
  return aliases;
}

}  // namespace

// Makes the types of a schema. Types without a name exist once for each place, primitives, too.
class AvroParser {
 public:
  explicit AvroParser(AvroSchema* schema) : schema_(schema) {}

  absl::Status Run(const Json& definition) {
    auto root = Parse(definition, "", 0);
    if (!root.ok()) return root.status();
    schema_->root_ = *root;
    // Now that all types are complete.
    for (const auto& [type, value] : defaults_) {
      if (auto s = CheckAvroJson(*type, *value, AvroJsonForm::kDefault); !s.ok()) {
        return Invalid("a default does not match its type: ", s.message());
      }
    }
    return absl::OkStatus();
  }

 private:
  using Result = absl::StatusOr<const AvroType*>;

  AvroType* Make(Kind kind, std::string name) {
    schema_->types_.push_back(std::make_unique<AvroType>());
    AvroType* type = schema_->types_.back().get();
    type->kind = kind;
    type->name = std::move(name);
    return type;
  }

  Result Parse(const Json& json, const std::string& space, int depth) {
    if (depth > kMaxSchemaDepth) return Invalid("types are nested too deeply");
    if (json.is_string()) return Reference(json.get<std::string>(), space);
    if (json.is_array()) return Union(json, space, depth);
    if (!json.is_object()) return Invalid("a type must be a string, an object or an array");
    const auto kind = Text(json, "type");
    if (!kind.ok()) return kind.status();
    if (*kind == "record" || *kind == "error") return Record(json, space, depth);
    if (*kind == "enum") return Enum(json, space);
    if (*kind == "fixed") return Fixed(json, space);
    if (*kind == "array") return Container(Kind::kArray, json, "items", space, depth);
    if (*kind == "map") return Container(Kind::kMap, json, "values", space, depth);
    return Reference(*kind, space);
  }

  Result Reference(const std::string& name, const std::string& space) {
    if (const auto primitive = PrimitiveOf(name)) return Make(*primitive, name);
    const auto found = named_.find(Qualify(name, space));
    if (found == named_.end()) return Invalid("there is no type \"", name, "\"");
    return found->second;
  }

  // The name of a type is known from here on, so that its own fields may refer to it.
  absl::StatusOr<AvroType*> Named(Kind kind, const Json& json, const std::string& space) {
    const auto name = Text(json, "name");
    if (!name.ok()) return name.status();
    std::string own_space = space;
    if (json.contains("namespace")) {
      const auto given = Text(json, "namespace");
      if (!given.ok()) return given.status();
      if (!given->empty() && !IsFullName(*given)) return Invalid("bad namespace \"", *given, "\"");
      own_space = *given;
    }
    const std::string full = Qualify(*name, own_space);
    if (!IsFullName(full)) return Invalid("bad name \"", *name, "\"");
    if (PrimitiveOf(full)) return Invalid("\"", full, "\" is the name of a primitive type");
    AvroType* type = Make(kind, full);
    if (!named_.emplace(full, type).second) return Invalid("type \"", full, "\" is defined twice");
    const auto aliases = Aliases(json);
    if (!aliases.ok()) return aliases.status();
    for (const std::string& alias : *aliases)
      type->aliases.push_back(Qualify(alias, SpaceOf(full)));
    return type;
  }

  Result Record(const Json& json, const std::string& space, int depth) {
    auto type = Named(Kind::kRecord, json, space);
    if (!type.ok()) return type.status();
    const auto fields = json.find("fields");
    if (fields == json.end() || !fields->is_array()) {
      return Invalid("record \"", (*type)->name, "\" needs an array \"fields\"");
    }
    absl::flat_hash_set<std::string> names;
    for (const Json& each : *fields) {
      auto field = Field(each, SpaceOf((*type)->name), depth);
      if (!field.ok()) return field.status();
      if (!names.insert(field->name).second) {
        return Invalid("record \"", (*type)->name, "\" has two fields \"", field->name, "\"");
      }
      (*type)->fields.push_back(*std::move(field));
    }
    return *type;
  }

  absl::StatusOr<AvroType::Field> Field(const Json& json, const std::string& space, int depth) {
    if (!json.is_object()) return Invalid("a field must be an object");
    const auto name = Text(json, "name");
    if (!name.ok()) return name.status();
    if (!IsSimpleName(*name)) return Invalid("bad name of a field: \"", *name, "\"");
    const auto type_json = json.find("type");
    if (type_json == json.end()) return Invalid("field \"", *name, "\" has no \"type\"");
    const auto type = Parse(*type_json, space, depth + 1);
    if (!type.ok()) return type.status();
    if (const auto order = json.find("order"); order != json.end() && *order != "ascending" &&
                                               *order != "descending" && *order != "ignore") {
      return Invalid("\"order\" of field \"", *name, "\" must be ascending, descending or ignore");
    }
    const auto aliases = Aliases(json);
    if (!aliases.ok()) return aliases.status();
    const auto value = json.find("default");
    if (value != json.end()) defaults_.emplace_back(*type, &*value);
    return AvroType::Field{*name, *aliases, *type, value != json.end()};
  }

  Result Enum(const Json& json, const std::string& space) {
    auto type = Named(Kind::kEnum, json, space);
    if (!type.ok()) return type.status();
    const auto symbols = json.find("symbols");
    if (symbols == json.end() || !symbols->is_array()) {
      return Invalid("enum \"", (*type)->name, "\" needs an array \"symbols\"");
    }
    absl::flat_hash_set<std::string> names;
    for (const Json& symbol : *symbols) {
      if (!symbol.is_string() || !IsSimpleName(symbol.get<std::string>())) {
        return Invalid("symbols of enum \"", (*type)->name, "\" must be names");
      }
      (*type)->symbols.push_back(symbol.get<std::string>());
      if (!names.insert((*type)->symbols.back()).second) {
        return Invalid("enum \"", (*type)->name, "\" has a symbol twice");
      }
    }
    if (const auto value = json.find("default"); value != json.end()) {
      if (!value->is_string() || !names.contains(value->get<std::string>())) {
        return Invalid("the default of enum \"", (*type)->name, "\" must be one of its symbols");
      }
      (*type)->has_default_symbol = true;
    }
    return *type;
  }

  Result Fixed(const Json& json, const std::string& space) {
    auto type = Named(Kind::kFixed, json, space);
    if (!type.ok()) return type.status();
    const auto size = json.find("size");
    if (size == json.end() || !size->is_number_integer() || size->get<int64_t>() < 0) {
      return Invalid("fixed \"", (*type)->name, "\" needs a \"size\" of 0 or more");
    }
    (*type)->size = size->get<int64_t>();
    return *type;
  }

  Result Container(Kind kind, const Json& json, const char* attribute, const std::string& space,
                   int depth) {
    const auto found = json.find(attribute);
    if (found == json.end()) return Invalid("a type has no \"", attribute, "\"");
    const auto element = Parse(*found, space, depth + 1);
    if (!element.ok()) return element.status();
    AvroType* type = Make(kind, kind == Kind::kArray ? "array" : "map");
    type->element = *element;
    return type;
  }

  Result Union(const Json& json, const std::string& space, int depth) {
    AvroType* type = Make(Kind::kUnion, "union");
    absl::flat_hash_set<std::string> names;
    for (const Json& each : json) {
      const auto branch = Parse(each, space, depth + 1);
      if (!branch.ok()) return branch.status();
      if ((*branch)->kind == Kind::kUnion) return Invalid("a union contains a union");
      if (!names.insert((*branch)->name).second) {
        return Invalid("a union has \"", (*branch)->name, "\" twice");
      }
      type->branches.push_back(*branch);
    }
    return type;
  }

  AvroSchema* const schema_;
  std::map<std::string, const AvroType*> named_;  // by full name
  std::vector<std::pair<const AvroType*, const Json*>> defaults_;
};

absl::StatusOr<AvroSchema> AvroSchema::Parse(absl::string_view definition) {
  Json json;
  if (auto s = ParseShallowJson(definition, &json); !s.ok()) return s;
  if (json.is_array()) return Invalid("it must define one type, not a union");
  AvroSchema schema;
  if (auto s = AvroParser(&schema).Run(json); !s.ok()) return s;
  return schema;
}

}  // namespace postbox::emulator
