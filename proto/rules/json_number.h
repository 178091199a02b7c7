// What a JSON number is, however it is written: 12, 12.0, 1.2e1 and 120e-1 are one number.
//
// Plain header: standard library only.
#ifndef POSTBOX_PROTO_RULES_JSON_NUMBER_H_
#define POSTBOX_PROTO_RULES_JSON_NUMBER_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace postbox::json {

// The most digits of a whole number that are written out; those of 64 bits have 20.
inline constexpr std::size_t kMostDigits = 40;

namespace internal {

// A number is digits * 10^shift. Its digits begin and end with another digit than 0; 0 has none.
struct Decimal {
  bool negative = false;
  bool more = false;  // there are more digits, which are left out
  char digits[kMostDigits] = {};
  std::size_t count = 0;
  long shift = 0;
};

inline bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Keeps what is larger out of the range of every type.
inline long ReadExponent(std::string_view text) {
  bool negative = false;
  long value = 0;
  for (const char c : text) {
    if (c == '-') negative = true;
    if (IsDigit(c) && value < 100'000'000) value = value * 10 + (c - '0');
  }
  return negative ? -value : value;
}

// `number` is JSON.
inline Decimal ReadDecimal(std::string_view number) {
  Decimal decimal;
  const std::size_t exponent = number.find_first_of("eE");
  if (exponent != std::string_view::npos) {
    decimal.shift = ReadExponent(number.substr(exponent + 1));
    number = number.substr(0, exponent);
  }
  bool fraction = false;
  std::size_t zeros = 0;  // since the last other digit
  for (const char c : number) {
    if (c == '-') decimal.negative = true;
    if (c == '.') fraction = true;
    if (!IsDigit(c)) continue;
    if (fraction) --decimal.shift;
    if (c == '0') {
      if (decimal.count > 0 || decimal.more) ++zeros;
      continue;
    }
    // Zeros count only between other digits.
    if (decimal.count + zeros + 1 > kMostDigits || decimal.more) {
      decimal.more = true;
      ++zeros;
      continue;
    }
    for (; zeros > 0; --zeros) decimal.digits[decimal.count++] = '0';
    decimal.digits[decimal.count++] = c;
  }
  decimal.shift += static_cast<long>(zeros);
  if (decimal.count == 0) decimal.shift = 0;
  return decimal;
}

}  // namespace internal

// Writes a number that is whole with its digits alone, 1e3 as 1000, and returns their number. 0 if
// it is not whole, or has more than kMostDigits. `out` has room for a sign, too.
inline std::size_t WriteWhole(std::string_view number, char (&out)[kMostDigits + 1]) {
  const internal::Decimal decimal = internal::ReadDecimal(number);
  if (decimal.more || decimal.shift < 0) return 0;
  if (decimal.count + static_cast<std::size_t>(decimal.shift) > kMostDigits) return 0;
  std::size_t length = 0;
  if (decimal.count == 0) out[length++] = '0';
  if (decimal.count > 0 && decimal.negative) out[length++] = '-';
  for (std::size_t i = 0; i < decimal.count; ++i) out[length++] = decimal.digits[i];
  for (long i = 0; i < decimal.shift; ++i) out[length++] = '0';
  return length;
}

// number * 10^places, rounded to the nearest whole number. Nothing if that needs more than 64 bits.
inline std::optional<std::int64_t> Scaled(std::string_view number, int places) {
  const internal::Decimal decimal = internal::ReadDecimal(number);
  const long shift = decimal.shift + places;
  const long whole = static_cast<long>(decimal.count) + shift;  // digits before the point
  if (whole > 19) return std::nullopt;
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  std::uint64_t value = 0;
  for (long i = 0; i < whole; ++i) {
    const auto at = static_cast<std::size_t>(i);
    value = value * 10;
    if (at < decimal.count) value += static_cast<std::uint64_t>(decimal.digits[at] - '0');
  }
  const bool has_next = whole >= 0 && static_cast<std::size_t>(whole) < decimal.count;
  if (has_next && decimal.digits[whole] >= '5') ++value;
  if (value > kMost) return std::nullopt;
  const auto result = static_cast<std::int64_t>(value);
  return decimal.negative ? -result : result;
}

}  // namespace postbox::json

#endif  // POSTBOX_PROTO_RULES_JSON_NUMBER_H_
