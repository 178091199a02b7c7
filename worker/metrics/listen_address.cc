#include "worker/metrics/listen_address.h"

#include <charconv>

namespace postbox::metrics {
namespace {

constexpr char kLoopback[] = "127.0.0.1";

}  // namespace

std::optional<ListenAddress> ParseListenAddress(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  ListenAddress address;
  const char* const end = digits.data() + digits.size();
  const auto [last, problem] = std::from_chars(digits.data(), end, address.port);
  if (digits.empty() || problem != std::errc() || last != end) return std::nullopt;
  if (host.starts_with('[')) {
    if (!host.ends_with(']') || host.size() < 3) return std::nullopt;
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return std::nullopt;  // which of the colons comes before the port is not clear
  }
  address.host = host.empty() ? kLoopback : host;
  return address;
}

std::string FormatListenAddress(const ListenAddress& address) {
  const bool colons = address.host.find(':') != std::string::npos;
  return (colons ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

}  // namespace postbox::metrics
