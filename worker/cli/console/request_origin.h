// Where requests may come from.
//
// A page of another site can make a browser send requests here: through a name that it lets point
// to 127.0.0.1 (DNS rebinding), or across sites. So the header Host must be a name under which the
// console is known, and Origin and Sec-Fetch-Site, which browsers send and pages cannot change,
// must say that the request comes from the console's own page.
#ifndef POSTBOX_WORKER_CLI_CONSOLE_REQUEST_ORIGIN_H_
#define POSTBOX_WORKER_CLI_CONSOLE_REQUEST_ORIGIN_H_

#include <string>
#include <string_view>
#include <vector>

#include "worker/metrics/listen_address.h"

namespace postbox::cli {

// An address to listen on, as a number.
struct OwnAddress : metrics::ListenAddress {
  bool loopback = false;
};
// False if the text is none. Names other than localhost are none: what a name stands for is only
// known when it is used.
bool ParseOwnAddress(std::string_view text, OwnAddress* address);

// The URL under which browsers reach the console: http or https, a host with an optional port, and
// an optional prefix of the path.
struct PublicUrl {
  bool https = false;
  std::string host;    // as in the header Host, in lower case
  std::string prefix;  // empty, or a path as in http://ops/postbox
};
// An error, or nothing.
std::string ParsePublicUrl(std::string_view text, PublicUrl* url);

class AllowedOrigins {
 public:
  // Of an address with its real port. `url`: its host is empty if there is none.
  AllowedOrigins(const OwnAddress& address, const PublicUrl& url);

  bool IsHost(std::string_view host) const;
  // `origin` and `site` (Sec-Fetch-Site) are empty if the request has no such header.
  bool IsOwn(std::string_view origin, std::string_view site) const;

 private:
  std::vector<std::string> hosts_;
  std::vector<std::string> origins_;
};

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_CONSOLE_REQUEST_ORIGIN_H_
