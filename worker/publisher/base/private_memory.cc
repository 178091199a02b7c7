// See private_memory.h.
#include "worker/publisher/base/private_memory.h"

#include "extension/base/guard.h"

namespace postbox::publisher {

// Only calls that a signal handler may make.
std::size_t PrivateMemory() {
  char text[128];
  const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t size = read(file, text, sizeof text - 1);
  close(file);
  // In pages: size, resident, of these shared.
  std::size_t numbers[3] = {};
  int at = 0;
  for (ssize_t i = 0; i < size && at < 3; ++i) {
    if (text[i] == ' ') {
      ++at;
    } else if (text[i] >= '0' && text[i] <= '9') {
      numbers[at] = numbers[at] * 10 + static_cast<std::size_t>(text[i] - '0');
    }
  }
  constexpr std::size_t kPage = 4096;
  return numbers[1] > numbers[2] ? (numbers[1] - numbers[2]) * kPage : 0;
}

}  // namespace postbox::publisher
