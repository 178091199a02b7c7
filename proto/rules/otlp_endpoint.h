// The address of a collector of traces that speaks OTLP over gRPC: http://host[:port] is plain
// text, https://host[:port] is TLS; the port is 4317 unless it is given. The setting
// postbox.otlp_endpoint, the option --otlp-endpoint and OTEL_EXPORTER_OTLP_ENDPOINT have this form.
//
// Plain header: standard library only.

#ifndef POSTBOX_PROTO_RULES_OTLP_ENDPOINT_H_
#define POSTBOX_PROTO_RULES_OTLP_ENDPOINT_H_

#include <string>
#include <string_view>

#include "proto/rules/endpoint.h"

namespace postbox::pubsub {

// On failure returns false and puts one lower-case phrase into `error`.
inline bool ParseOtlpEndpoint(std::string_view text, Endpoint* endpoint, std::string* error) {
  constexpr std::string_view kPlain = "http://";
  constexpr std::string_view kTls = "https://";
  constexpr std::string_view kPort = "4317";
  endpoint->plaintext = text.starts_with(kPlain);
  if (!endpoint->plaintext && !text.starts_with(kTls)) {
    *error = "endpoint must begin with http:// or https://";
    return false;
  }
  text.remove_prefix(endpoint->plaintext ? kPlain.size() : kTls.size());
  return internal::ParseAddress(text, kPort, &endpoint->address, error);
}

}  // namespace postbox::pubsub

#endif  // POSTBOX_PROTO_RULES_OTLP_ENDPOINT_H_
