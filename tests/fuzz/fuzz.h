// Fuzz targets: each reads bytes that come from outside and checks what must hold whatever they
// are.
//
// A target is one file, for instance names_fuzz.cc, that defines FUZZ(Input* input). It is linked
// with random_driver.cc, which makes random inputs, or with libFuzzer, which looks for inputs that
// reach new code. Its file in corpus/ has inputs to begin with, one a line, with \n, \\ and \xNN
// for other bytes; `#` begins a comment. `control/fuzz names` runs a target.
#ifndef POSTBOX_TESTS_FUZZ_FUZZ_H_
#define POSTBOX_TESTS_FUZZ_FUZZ_H_

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace postbox::fuzz {

// An input, and what has been taken of it. When it is used up, texts are empty and numbers are 0.
class Input {
 public:
  explicit Input(std::string_view bytes) : rest_(bytes) {}

  // The bytes up to the next line feed, or all that are left.
  std::string_view Line() {
    const std::string_view line = rest_.substr(0, rest_.find('\n'));
    rest_.remove_prefix(std::min(line.size() + 1, rest_.size()));
    return line;
  }
  std::string_view Rest() {
    const std::string_view rest = rest_;
    rest_ = {};
    return rest;
  }
  std::uint8_t Byte() {
    if (rest_.empty()) return 0;
    const auto byte = static_cast<std::uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return byte;
  }
  std::int64_t Integer() {
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | Byte();
    return static_cast<std::int64_t>(value);
  }
  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

// Bytes as a line of a corpus has them.
inline std::string Escaped(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      text += "\\n";
    } else if (c == '\\') {
      text += "\\\\";
    } else if (byte >= 0x20 && byte < 0x7F) {
      text += c;
    } else {
      char hex[5];
      std::snprintf(hex, sizeof hex, "\\x%02X", byte);
      text += hex;
    }
  }
  return text;
}

[[noreturn]] inline void Fail(const char* file, int line, const char* condition,
                              std::string_view what) {
  std::fprintf(stderr, "%s:%d: does not hold: %s\n  %s\n", file, line, condition,
               Escaped(what).c_str());
  std::abort();
}

}  // namespace postbox::fuzz

// `what` is a text that is printed if the condition does not hold.
#define FUZZ_CHECK(condition, what) \
  ((condition) ? static_cast<void>(0) : postbox::fuzz::Fail(__FILE__, __LINE__, #condition, what))

// The body of a target.
#define FUZZ(parameter)                                                               \
  static void FuzzOne(parameter);                                                     \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);  \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) { \
    postbox::fuzz::Input input({reinterpret_cast<const char*>(data), size});          \
    FuzzOne(&input);                                                                  \
    return 0;                                                                         \
  }                                                                                   \
  static void FuzzOne(parameter)

#endif  // POSTBOX_TESTS_FUZZ_FUZZ_H_
