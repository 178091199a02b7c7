#include "worker/cli/console/request_origin.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>
#include <optional>

namespace postbox::cli {
namespace {

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

bool Contains(const std::vector<std::string>& texts, const std::string& text) {
  return std::find(texts.begin(), texts.end(), text) != texts.end();
}

// As in a URL.
std::string InBrackets(const std::string& host) {
  return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

bool IsHostCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == ':' ||
         c == '[' || c == ']';
}

bool IsPathCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_' ||
         c == '/';
}

}  // namespace

bool ParseOwnAddress(std::string_view text, OwnAddress* address) {
  const std::optional<metrics::ListenAddress> parsed = metrics::ParseListenAddress(text);
  if (!parsed) return false;
  *address = {*parsed, false};
  if (address->host == "localhost") address->host = "127.0.0.1";
  in_addr four{};
  in6_addr six{};
  if (inet_pton(AF_INET, address->host.c_str(), &four) == 1) {
    address->loopback = (ntohl(four.s_addr) >> 24) == 127;
    return true;
  }
  if (inet_pton(AF_INET6, address->host.c_str(), &six) != 1) return false;
  address->loopback = IN6_IS_ADDR_LOOPBACK(&six);
  return true;
}

std::string ParsePublicUrl(std::string_view text, PublicUrl* url) {
  constexpr std::string_view kPlain = "http://";
  constexpr std::string_view kSecure = "https://";
  url->https = text.starts_with(kSecure);
  if (!url->https && !text.starts_with(kPlain)) return "it begins with http:// or https://";
  text.remove_prefix(url->https ? kSecure.size() : kPlain.size());
  const size_t slash = std::min(text.find('/'), text.size());
  url->host = Lower(text.substr(0, slash));
  url->prefix = std::string(text.substr(slash));
  while (url->prefix.ends_with('/')) url->prefix.pop_back();
  if (url->host.empty() || !std::all_of(url->host.begin(), url->host.end(), IsHostCharacter)) {
    return "behind http:// or https:// comes a host, with a port if that is not the default";
  }
  const bool path = std::all_of(url->prefix.begin(), url->prefix.end(), IsPathCharacter);
  if (!path || url->prefix.find("//") != std::string::npos ||
      url->prefix.find("/.") != std::string::npos) {
    return "its path consists of letters, digits, and the characters . - _ /";
  }
  return "";
}

AllowedOrigins::AllowedOrigins(const OwnAddress& address, const PublicUrl& url) {
  const std::string port = ":" + std::to_string(address.port);
  hosts_.push_back(InBrackets(address.host) + port);
  if (address.loopback) hosts_.push_back("localhost" + port);
  for (const std::string& host : hosts_) origins_.push_back("http://" + host);
  if (url.host.empty()) return;
  hosts_.push_back(url.host);
  origins_.push_back((url.https ? "https://" : "http://") + url.host);
}

bool AllowedOrigins::IsHost(std::string_view host) const { return Contains(hosts_, Lower(host)); }

bool AllowedOrigins::IsOwn(std::string_view origin, std::string_view site) const {
  // "none": the user has typed the address.
  if (!site.empty() && site != "same-origin" && site != "none") return false;
  return origin.empty() || Contains(origins_, Lower(origin));
}

}  // namespace postbox::cli
