// Where an HTTP server listens, as an option names it: HOST:PORT, [ADDRESS]:PORT, or :PORT, which
// is loopback only. Other machines must be asked for: 0.0.0.0:PORT or [::]:PORT.
#ifndef POSTBOX_WORKER_METRICS_LISTEN_ADDRESS_H_
#define POSTBOX_WORKER_METRICS_LISTEN_ADDRESS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace postbox::metrics {

struct ListenAddress {
  std::string host;        // without brackets
  std::uint16_t port = 0;  // 0: the system chooses a free one
  bool operator==(const ListenAddress&) const = default;
};

// Nothing if the text has another form.
std::optional<ListenAddress> ParseListenAddress(std::string_view text);
// HOST:PORT, with brackets where the host has colons.
std::string FormatListenAddress(const ListenAddress& address);

}  // namespace postbox::metrics

#endif  // POSTBOX_WORKER_METRICS_LISTEN_ADDRESS_H_
