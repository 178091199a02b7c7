// A schema of Apache Avro 1.11, parsed and checked.
//
// The types of a schema form a graph: a named type may refer to itself. All of them belong to the
// AvroSchema.
#ifndef POSTBOX_WORKER_EMULATOR_SCHEMA_AVRO_SCHEMA_H_
#define POSTBOX_WORKER_EMULATOR_SCHEMA_AVRO_SCHEMA_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace postbox::emulator {

// How deep types and values may lie in each other. A recursive type has values of any depth.
inline constexpr int kMaxSchemaDepth = 100;

struct AvroType {
  enum class Kind {
    kNull,
    kBoolean,
    kInt,
    kLong,
    kFloat,
    kDouble,
    kBytes,
    kString,
    kRecord,
    kEnum,
    kFixed,
    kArray,
    kMap,
    kUnion
  };
  struct Field {
    std::string name;
    std::vector<std::string> aliases;
    const AvroType* type = nullptr;
    bool has_default = false;
  };

  Kind kind = Kind::kNull;
  // Of a record, enum or fixed the full name; else that of the kind.
  std::string name;
  std::vector<std::string> aliases;       // full names
  std::vector<Field> fields;              // of a record
  std::vector<std::string> symbols;       // of an enum
  bool has_default_symbol = false;        // the same
  int64_t size = 0;                       // of a fixed, in bytes
  const AvroType* element = nullptr;      // of an array or map
  std::vector<const AvroType*> branches;  // of a union
};

class AvroSchema {
 public:
  // INVALID_ARGUMENT with the reason if `definition` is no schema.
  static absl::StatusOr<AvroSchema> Parse(absl::string_view definition);

  const AvroType& root() const { return *root_; }

 private:
  friend class AvroParser;
  std::vector<std::unique_ptr<AvroType>> types_;
  const AvroType* root_ = nullptr;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_SCHEMA_AVRO_SCHEMA_H_
