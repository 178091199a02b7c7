#include "worker/emulator/schema/avro_resolution.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "worker/emulator/rules/invalid.h"

namespace postbox::emulator {
namespace {

using Kind = AvroType::Kind;

template <class Texts>
bool Contains(const Texts& texts, const std::string& text) {
  return std::find(texts.begin(), texts.end(), text) != texts.end();
}

absl::string_view Unqualified(absl::string_view name) {
  return name.substr(name.rfind('.') + 1);  // npos + 1 == 0
}

bool NamesMatch(const AvroType& reader, const AvroType& writer) {
  return Unqualified(reader.name) == Unqualified(writer.name) ||
         Contains(reader.aliases, writer.name);
}

bool IsPromotion(Kind reader, Kind writer) {
  switch (writer) {
    case Kind::kInt:
      return reader == Kind::kLong || reader == Kind::kFloat || reader == Kind::kDouble;
    case Kind::kLong:
      return reader == Kind::kFloat || reader == Kind::kDouble;
    case Kind::kFloat:
      return reader == Kind::kDouble;
    case Kind::kString:
      return reader == Kind::kBytes;
    case Kind::kBytes:
      return reader == Kind::kString;
    default:
      return false;
  }
}

class Resolver {
 public:
  absl::Status Check(const AvroType& reader, const AvroType& writer) {
    if (depth_ == kMaxDepth) return Invalid("types refer to each other too deeply");
    ++depth_;
    const bool records = reader.kind == Kind::kRecord && writer.kind == Kind::kRecord;
    absl::Status status = records ? CheckRecords(reader, writer) : Compare(reader, writer);
    --depth_;
    return status;
  }

 private:
  using Pair = std::pair<const AvroType*, const AvroType*>;
  static constexpr int kMaxDepth = 10 * kMaxSchemaDepth;

  // Only a record comes to itself again, so only records are remembered: two large unions have
  // millions of pairs of branches.
  absl::Status CheckRecords(const AvroType& reader, const AvroType& writer) {
    if (!NamesMatch(reader, writer)) {
      return Invalid("record ", reader.name, " has another name than ", writer.name);
    }
    const Pair pair(&reader, &writer);
    // What is being compared counts as readable.
    const auto [known, is_new] = known_.emplace(pair, true);
    if (!is_new) {
      return known->second ? absl::OkStatus() : Invalid(reader.name, " cannot read ", writer.name);
    }
    const size_t mark = trail_.size();
    trail_.push_back(pair);
    const absl::Status status = CheckFields(reader, writer);
    if (status.ok()) return status;
    // What was found readable since may have relied on this pair. What was not is so for good.
    for (; trail_.size() > mark; trail_.pop_back()) {
      if (const auto at = known_.find(trail_.back()); at->second) known_.erase(at);
    }
    known_[pair] = false;
    return status;
  }

  absl::Status Compare(const AvroType& reader, const AvroType& writer) {
    if (writer.kind == Kind::kUnion) {
      for (const AvroType* branch : writer.branches) {
        if (auto s = Check(reader, *branch); !s.ok()) return s;
      }
      return absl::OkStatus();
    }
    if (reader.kind == Kind::kUnion) {
      for (const AvroType* branch : reader.branches) {
        if (Check(*branch, writer).ok()) return absl::OkStatus();
      }
      return Invalid("a union has no branch that reads ", writer.name);
    }
    if (reader.kind != writer.kind) {
      if (IsPromotion(reader.kind, writer.kind)) return absl::OkStatus();
      return Invalid(reader.name, " cannot read ", writer.name);
    }
    switch (reader.kind) {
      case Kind::kArray:
      case Kind::kMap:
        return Check(*reader.element, *writer.element);
      case Kind::kEnum:
        return CheckEnum(reader, writer);
      case Kind::kFixed:
        if (NamesMatch(reader, writer) && reader.size == writer.size) return absl::OkStatus();
        return Invalid("fixed ", reader.name, " has another name or size");
      default:
        return absl::OkStatus();
    }
  }

  absl::Status CheckFields(const AvroType& reader, const AvroType& writer) {
    for (const AvroType::Field& field : reader.fields) {
      const auto found = std::find_if(
          writer.fields.begin(), writer.fields.end(), [&field](const AvroType::Field& other) {
            return other.name == field.name || Contains(field.aliases, other.name);
          });
      if (found == writer.fields.end()) {
        if (field.has_default) continue;
        return Invalid("field \"", field.name, "\" of ", reader.name,
                       " is not in the other revision and has no default");
      }
      if (auto s = Check(*field.type, *found->type); !s.ok()) {
        if (s.message().size() > kLongMessage) return s;
        return Invalid("field \"", field.name, "\" of ", reader.name, ": ", s.message());
      }
    }
    return absl::OkStatus();
  }

  static absl::Status CheckEnum(const AvroType& reader, const AvroType& writer) {
    if (!NamesMatch(reader, writer)) {
      return Invalid("enum ", reader.name, " has another name than ", writer.name);
    }
    if (reader.has_default_symbol) return absl::OkStatus();
    for (const std::string& symbol : writer.symbols) {
      if (!Contains(reader.symbols, symbol)) {
        return Invalid("enum ", reader.name, " has no symbol ", symbol, " and no default");
      }
    }
    return absl::OkStatus();
  }

  std::map<Pair, bool> known_;  // whether the reader reads the writer
  std::vector<Pair> trail_;  // those of known_ that are readable, in the order of their insertion
  int depth_ = 0;
};

}  // namespace

absl::Status CheckAvroReads(const AvroType& reader, const AvroType& writer) {
  return Resolver().Check(reader, writer);
}

}  // namespace postbox::emulator
