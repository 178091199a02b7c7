// See process_usage.h.
#include "worker/publisher/base/process_usage.h"

#include <array>

#include "extension/base/guard.h"

namespace postbox::publisher {
namespace {

// The first three numbers of a file of /proc; 0 for those that are not there. Only calls that a
// signal handler may make.
std::array<std::size_t, 3> FirstNumbers(const char* path) {
  std::array<std::size_t, 3> numbers{};
  char text[128];
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return numbers;
  const ssize_t size = read(file, text, sizeof text);
  close(file);
  std::size_t at = 0;
  for (ssize_t i = 0; i < size && at < numbers.size(); ++i) {
    if (text[i] == ' ') {
      ++at;
    } else if (text[i] >= '0' && text[i] <= '9') {
      numbers[at] = numbers[at] * 10 + static_cast<std::size_t>(text[i] - '0');
    }
  }
  return numbers;
}

}  // namespace

std::size_t PrivateMemory() {
  // In pages: size, resident, of these shared.
  const auto [size, resident, shared] = FirstNumbers("/proc/self/statm");
  constexpr std::size_t kPage = 4096;
  return resident > shared ? (resident - shared) * kPage : 0;
}

std::chrono::milliseconds ProcessorWait() {
  // In nanoseconds: running, ready to run. What is here of the process is its main thread.
  const auto [running, ready, slices] = FirstNumbers("/proc/self/schedstat");
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::nanoseconds(ready));
}

}  // namespace postbox::publisher
