#include "worker/emulator/schema/avro_binary.h"

#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "proto/rules/utf8.h"

namespace postbox::emulator {
namespace {

using Kind = AvroType::Kind;

// The values in one message. Without a limit a few bytes could announce 2^63 values of no size.
constexpr int64_t kMaxValues = 10'000'000;

class AvroReader {
 public:
  explicit AvroReader(absl::string_view data) : rest_(data) {}

  absl::Status Run(const AvroType& type) {
    if (!Value(type, 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("it is not a value of ", type.name, ": ", problem_));
    }
    if (rest_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(rest_.size(), " bytes are left behind the value of ", type.name));
  }

 private:
  // False, with problem_ set, if there is no such value.
  bool Value(const AvroType& type, int depth) {
    if (depth > kMaxSchemaDepth) return Fail("values are nested too deeply");
    if (++values_ > kMaxValues) return Fail("it has too many values");
    int64_t number = 0;
    switch (type.kind) {
      case Kind::kNull:
        return true;
      case Kind::kBoolean:
        if (rest_.empty()) return Fail(kShort);
        if (static_cast<unsigned char>(rest_[0]) > 1) return Fail("a boolean is neither 0 nor 1");
        return Skip(1);
      case Kind::kInt:
        if (!Long(&number)) return false;
        if (number < std::numeric_limits<int32_t>::min() ||
            number > std::numeric_limits<int32_t>::max()) {
          return Fail("an int is too large");
        }
        return true;
      case Kind::kLong:
        return Long(&number);
      case Kind::kFloat:
        return Skip(4);
      case Kind::kDouble:
        return Skip(8);
      case Kind::kBytes:
        return Long(&number) && Skip(number);
      case Kind::kString:
        return String();
      case Kind::kFixed:
        return Skip(type.size);
      case Kind::kEnum:
        return Index(type.symbols.size(), &number);
      case Kind::kRecord:
        for (const AvroType::Field& field : type.fields) {
          if (!Value(*field.type, depth + 1)) return false;
        }
        return true;
      case Kind::kUnion:
        return Index(type.branches.size(), &number) &&
               Value(*type.branches[static_cast<size_t>(number)], depth + 1);
      case Kind::kArray:
      case Kind::kMap:
        return Blocks(type, depth);
    }
    return Fail("its type is unknown");
  }

  bool Blocks(const AvroType& type, int depth) {
    for (;;) {
      int64_t count = 0;
      if (!Long(&count)) return false;
      if (count == 0) return true;
      if (count < 0) {  // with the size of the block
        int64_t bytes = 0;
        if (count == std::numeric_limits<int64_t>::min()) return Fail("a block is too large");
        count = -count;
        if (!Long(&bytes)) return false;
        if (bytes < 0 || static_cast<uint64_t>(bytes) > rest_.size()) return Fail(kShort);
      }
      for (; count > 0; --count) {
        if (type.kind == Kind::kMap && !String()) return false;
        if (!Value(*type.element, depth + 1)) return false;
      }
    }
  }

  bool String() {
    int64_t size = 0;
    if (!Long(&size)) return false;
    const absl::string_view text = rest_;
    if (!Skip(size)) return false;
    const auto length = static_cast<size_t>(size);
    return pubsub::FirstInvalidUtf8(std::string_view(text.data(), length)) == length ||
           Fail("a string is not UTF-8");
  }

  bool Index(size_t limit, int64_t* index) {
    if (!Long(index)) return false;
    if (*index >= 0 && static_cast<uint64_t>(*index) < limit) return true;
    return Fail("an enum or union has an index that its type does not have");
  }

  // A number of at most ten bytes, the lowest seven bits first; even numbers are not negative.
  bool Long(int64_t* number) {
    uint64_t bits = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) return Fail(kShort);
      const auto byte = static_cast<unsigned char>(rest_[0]);
      rest_.remove_prefix(1);
      if (shift == 63 && byte > 1) break;
      bits |= uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) {
        *number = static_cast<int64_t>(bits >> 1) ^ -static_cast<int64_t>(bits & 1);
        return true;
      }
    }
    return Fail("a number is too long");
  }

  bool Skip(int64_t bytes) {
    if (bytes < 0 || static_cast<uint64_t>(bytes) > rest_.size()) return Fail(kShort);
    rest_.remove_prefix(static_cast<size_t>(bytes));
    return true;
  }

  bool Fail(const char* problem) {
    problem_ = problem;
    return false;
  }

  static constexpr char kShort[] = "it ends too early";
  absl::string_view rest_;
  int64_t values_ = 0;
  const char* problem_ = "";
};

}  // namespace

absl::Status CheckAvroBinary(const AvroType& type, absl::string_view data) {
  return AvroReader(data).Run(type);
}

}  // namespace postbox::emulator
