// Where something is that speaks plain text only.
#ifndef POSTBOX_WORKER_CLI_BASE_PLAIN_ADDRESS_H_
#define POSTBOX_WORKER_CLI_BASE_PLAIN_ADDRESS_H_

#include <string>

namespace postbox::cli {

// host:port of an endpoint: http://host:port as in the setting, or host:port. False and one phrase
// in `problem` if it is none, or is for TLS.
bool PlainAddress(const std::string& text, std::string* address, std::string* problem);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_BASE_PLAIN_ADDRESS_H_
