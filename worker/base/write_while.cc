#include "worker/base/write_while.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

namespace postbox {

bool WriteWhile(int fd, std::string_view text, const std::function<bool()>& go_on) {
  constexpr int kAskMs = 200;
  while (!text.empty()) {
    pollfd room{fd, POLLOUT, 0};
    if (poll(&room, 1, kAskMs) <= 0) {
      if (!go_on()) return false;
      continue;
    }
    // As much as a pipe that is ready takes without waiting.
    const ssize_t written = write(fd, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
    if (written < 0 && errno != EINTR && errno != EAGAIN) return false;
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace postbox
