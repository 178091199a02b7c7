#include "worker/cli/base/plain_address.h"

#include "proto/rules/endpoint.h"

namespace postbox::cli {

bool PlainAddress(const std::string& text, std::string* address, std::string* problem) {
  const bool has_scheme = text.find("://") != std::string::npos;
  pubsub::Endpoint endpoint;
  if (!pubsub::ParseEndpoint(has_scheme ? text : "http://" + text, nullptr, &endpoint, problem)) {
    return false;
  }
  *address = endpoint.address;
  if (!endpoint.plaintext) *problem = "this is plain text only: give HOST:PORT or http://HOST:PORT";
  return endpoint.plaintext;
}

}  // namespace postbox::cli
