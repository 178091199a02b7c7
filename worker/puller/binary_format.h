// Integers in the binary format of values of Postgres: in network byte order.
#ifndef POSTBOX_WORKER_PULLER_BINARY_FORMAT_H_
#define POSTBOX_WORKER_PULLER_BINARY_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace postbox::puller {

template <class Unsigned>
void AppendNetwork(Unsigned value, std::string* out) {
  char bytes[sizeof(value)];
  for (std::size_t i = sizeof(value); i > 0; --i, value >>= 8) {
    bytes[i - 1] = static_cast<char>(value & 0xFF);
  }
  out->append(bytes, sizeof(bytes));
}

inline void AppendInt32(int64_t value, std::string* out) {
  AppendNetwork(static_cast<uint32_t>(value), out);
}
inline void AppendInt64(int64_t value, std::string* out) {
  AppendNetwork(static_cast<uint64_t>(value), out);
}

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_BINARY_FORMAT_H_
