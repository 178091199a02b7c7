// The address of Pub/Sub: the setting postbox.endpoint, or PUBSUB_EMULATOR_HOST, or Google.
//
// Plain header: standard library only. The setting has one of these forms:
//
//   ''                    the emulator at PUBSUB_EMULATOR_HOST if that is set, else Google
//                         (pubsub.googleapis.com:443, TLS)
//   http://host:port      plain text without credentials
//   https://host[:port]   TLS with Google's application default credentials; port 443 by default
//   host:port             the same as https://host:port
//
// Pub/Sub keeps the order of a key only if all its messages are published in one region. Publishers
// in several regions therefore use a locational endpoint, for example
// us-east1-pubsub.googleapis.com:443.

#ifndef POSTBOX_PROTO_RULES_ENDPOINT_H_
#define POSTBOX_PROTO_RULES_ENDPOINT_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace postbox::pubsub {

inline constexpr char kGoogleEndpoint[] = "pubsub.googleapis.com:443";

struct Endpoint {
  std::string address;     // host:port; an IPv6 host stands in brackets
  bool plaintext = false;  // true: no TLS and no credentials

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

namespace internal {

// Sets `address` to host:port. A missing port becomes `default_port`; if that is empty, it is an
// error.
inline bool ParseAddress(std::string_view text, std::string_view default_port, std::string* address,
                         std::string* error) {
  if (!text.empty() && text.back() == '/') text.remove_suffix(1);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= 0x20 || byte >= 0x7F || c == '/' || c == '?' || c == '#' || c == '@' || c == '\\') {
      *error = "endpoint may contain only a host and a port, no path or blanks";
      return false;
    }
  }
  std::string_view host = text;
  std::string_view port = default_port;
  std::size_t colon = text.rfind(':');
  if (!text.empty() && text.front() == '[') {
    const std::size_t bracket = text.find(']');
    if (bracket == std::string_view::npos || bracket == 1 ||
        (bracket + 1 != text.size() && text[bracket + 1] != ':')) {
      *error = "endpoint has an IPv6 address that is not of the form [address]:port";
      return false;
    }
    if (colon < bracket) colon = std::string_view::npos;
  } else if (colon != std::string_view::npos && text.find(':') != colon) {
    *error = "endpoint has an IPv6 address that is not of the form [address]:port";
    return false;
  }
  if (colon != std::string_view::npos) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
  }
  if (host.empty()) {
    *error = "endpoint has no host";
    return false;
  }
  unsigned number = 0;
  bool good = !port.empty() && port.size() <= 5;
  for (const char c : port) {
    good = good && c >= '0' && c <= '9';
    if (good) number = number * 10 + static_cast<unsigned>(c - '0');
  }
  if (!good || number < 1 || number > 65535) {
    *error = "endpoint needs a port from 1 to 65535";
    return false;
  }
  *address = std::string(host) + ":" + std::to_string(number);
  return true;
}

}  // namespace internal

// Parses the setting. `emulator_host` is the value of PUBSUB_EMULATOR_HOST or null. On failure
// returns false and puts one lower-case phrase into `error`.
inline bool ParseEndpoint(std::string_view setting, const char* emulator_host, Endpoint* endpoint,
                          std::string* error) {
  constexpr std::string_view kPlain = "http://";
  constexpr std::string_view kTls = "https://";
  if (setting.empty() && emulator_host != nullptr && *emulator_host != '\0') {
    std::string_view host = emulator_host;
    if (host.starts_with(kPlain)) host.remove_prefix(kPlain.size());
    std::string problem;
    if (!internal::ParseAddress(host, "", &endpoint->address, &problem)) {
      *error = "PUBSUB_EMULATOR_HOST is not valid: " + problem;
      return false;
    }
    endpoint->plaintext = true;
    return true;
  }
  if (setting.empty()) {
    *endpoint = Endpoint{kGoogleEndpoint, false};
    return true;
  }
  if (setting.starts_with(kPlain)) {
    endpoint->plaintext = true;
    return internal::ParseAddress(setting.substr(kPlain.size()), "", &endpoint->address, error);
  }
  endpoint->plaintext = false;
  if (setting.starts_with(kTls)) {
    return internal::ParseAddress(setting.substr(kTls.size()), "443", &endpoint->address, error);
  }
  if (setting.find("://") != std::string_view::npos) {
    *error = "endpoint must begin with http:// or https://, or be host:port";
    return false;
  }
  return internal::ParseAddress(setting, "", &endpoint->address, error);
}

}  // namespace postbox::pubsub

#endif  // POSTBOX_PROTO_RULES_ENDPOINT_H_
