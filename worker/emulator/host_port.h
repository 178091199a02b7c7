// Hosts as the command line takes them, and addresses as clients do: `::1` and `[::1]` are the same
// host, and its port 8085 is `[::1]:8085`.
#ifndef POSTBOX_WORKER_EMULATOR_HOST_PORT_H_
#define POSTBOX_WORKER_EMULATOR_HOST_PORT_H_

#include <string>

#include "absl/strings/str_cat.h"

namespace postbox::emulator {

inline std::string WithoutBrackets(const std::string& host) {
  const bool has = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return has ? host.substr(1, host.size() - 2) : host;
}

inline std::string HostPort(const std::string& host, int port) {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return is_ipv6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_HOST_PORT_H_
