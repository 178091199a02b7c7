// The binary format of values of Postgres: integers in network byte order, and how an array begins.
#ifndef POSTBOX_WORKER_PULLER_BINARY_FORMAT_H_
#define POSTBOX_WORKER_PULLER_BINARY_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace postbox::puller {

// Returns where it ends.
template <class Unsigned>
char* WriteNetwork(Unsigned value, char* at) {
  for (std::size_t i = sizeof(value); i > 0; --i, value >>= 8) {
    at[i - 1] = static_cast<char>(value & 0xFF);
  }
  return at + sizeof(value);
}

inline void AppendInt32(int64_t value, std::string* out) {
  char bytes[4];
  WriteNetwork(static_cast<uint32_t>(value), bytes);
  out->append(bytes, sizeof(bytes));
}

// Of array_recv: dimensions, "has nulls" flag, element type, then per dimension its length and
// lower bound. Each element follows, with its length (-1: NULL) and bytes.
inline void AppendArrayHeader(uint32_t element_type, std::size_t elements, bool has_nulls,
                              std::string* out) {
  AppendInt32(elements == 0 ? 0 : 1, out);
  AppendInt32(has_nulls ? 1 : 0, out);
  AppendInt32(element_type, out);
  if (elements == 0) return;
  AppendInt32(static_cast<int64_t>(elements), out);
  AppendInt32(1, out);
}
// What it takes at most.
inline constexpr std::size_t kArrayHeaderBytes = 20;

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_BINARY_FORMAT_H_
