// The proxy of the environment that leads to a server: one rule for Pub/Sub (gRPC) and for the
// servers of tokens (libcurl), each of which has its own rule.
//
// Plain header: standard library only.
//
//   - Only what goes over TLS has a proxy, as a tunnel (CONNECT). Plain text goes to an emulator, a
//     server of tokens on this machine, or the metadata server: directly.
//   - It is named by the first of https_proxy, HTTPS_PROXY, all_proxy and ALL_PROXY that is set and
//     not empty: [http://][user[:password]@]host[:port], with port 80 by default. Characters in the
//     user and the password may be percent-encoded.
//   - no_proxy, or else NO_PROXY, lists hosts that are reached directly, with commas or blanks
//     between them: `*` is every host, `example.com` and `.example.com` are that host and all below
//     it, `host:port` only that port. Addresses are compared as text; there are no ranges (CIDR).
//
// Capital letters make no difference in schemes and hosts.
#ifndef POSTBOX_PROTO_RULES_PROXY_H_
#define POSTBOX_PROTO_RULES_PROXY_H_

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "proto/rules/endpoint.h"

namespace postbox::pubsub {

struct Proxy {
  std::string address;    // host:port; empty: none, the server is reached directly
  std::string user_info;  // user[:password], decoded; empty: none
  std::string variable;   // of the environment, that names it

  bool used() const { return !address.empty(); }
  // For messages: without the password.
  std::string Name() const { return "http://" + address + " (" + variable + ")"; }

  friend bool operator==(const Proxy&, const Proxy&) = default;
};

namespace internal {

inline std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

// Without brackets of an IPv6 address and without a dot at its end.
inline std::string PlainHost(std::string_view host) {
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (host.ends_with('.')) host.remove_suffix(1);
  return LowerCase(host);
}

// Whether an entry of no_proxy is for the host, which PlainHost() has made, and the port.
inline bool IsExcepted(std::string_view entry, const std::string& host, std::string_view port) {
  if (entry == "*") return true;
  const std::size_t colon = entry.rfind(':');
  const bool has_port = colon != std::string_view::npos &&
                        (entry.front() == '[' ? entry[colon - 1] == ']' : entry.find(':') == colon);
  if (has_port) {
    if (entry.substr(colon + 1) != port) return false;
    entry = entry.substr(0, colon);
  }
  if (entry.starts_with('.')) entry.remove_prefix(1);
  const std::string name = PlainHost(entry);
  return !name.empty() && (host == name || host.ends_with("." + name));
}

inline bool IsExceptedByList(std::string_view list, std::string_view address) {
  const std::size_t colon = address.rfind(':');
  const std::string host = PlainHost(address.substr(0, colon));
  while (!list.empty()) {
    const std::size_t end = std::min(list.find_first_of(", \t"), list.size());
    const std::string_view entry = list.substr(0, end);
    list.remove_prefix(std::min(end + 1, list.size()));
    if (!entry.empty() && IsExcepted(entry, host, address.substr(colon + 1))) return true;
  }
  return false;
}

// False if a % is not followed by two digits, or what it stands for cannot be in a header.
inline bool PercentDecode(std::string_view text, std::string* decoded) {
  const auto digit = [](char c) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    return kDigits.find(c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c);
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size()) return false;
      const std::size_t high = digit(text[i + 1]);
      const std::size_t low = digit(text[i + 2]);
      if (high > 15 || low > 15) return false;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return false;
    *decoded += c;
  }
  return true;
}

inline bool ParseProxy(std::string_view text, Proxy* proxy) {
  const std::size_t scheme = text.find("://");
  if (scheme != std::string_view::npos) {
    if (LowerCase(text.substr(0, scheme)) != "http") return false;
    text.remove_prefix(scheme + 3);
  }
  const std::size_t at = text.rfind('@');
  if (at != std::string_view::npos) {
    if (!PercentDecode(text.substr(0, at), &proxy->user_info)) return false;
    text.remove_prefix(at + 1);
  }
  std::string unused;
  return ParseAddress(text, "80", &proxy->address, &unused);
}

}  // namespace internal

// `environment` is std::getenv or the like, `address` host:port of a server that is reached over
// TLS. If the proxy cannot be used, returns false and puts one phrase into `error`, without the
// value, which may have a password in it.
template <class Environment>
bool FindProxy(const Environment& environment, std::string_view address, Proxy* proxy,
               std::string* error) {
  const auto value = [&environment](const char* name) {
    const char* text = environment(name);
    return std::string_view(text == nullptr ? "" : text);
  };
  *proxy = Proxy();
  const std::string_view list = value("no_proxy").empty() ? value("NO_PROXY") : value("no_proxy");
  for (const char* name : {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"}) {
    if (value(name).empty()) continue;
    if (internal::IsExceptedByList(list, address)) return true;
    proxy->variable = name;
    if (internal::ParseProxy(value(name), proxy)) return true;
    *error = std::string(name) +
             " in the environment is not http://host:port or http://user:password@host:port of a "
             "proxy; https:// and socks5:// proxies cannot be used";
    *proxy = Proxy();
    return false;
  }
  return true;
}

}  // namespace postbox::pubsub

#endif  // POSTBOX_PROTO_RULES_PROXY_H_
