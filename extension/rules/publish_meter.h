// What the Pub/Sub client counts of the messages of one publication. In shared memory: the client
// of a worker adds, and sessions read.
//
// The messages of a request may belong to several publications, if these have one topic. Then each
// counts its own messages, and the publication of the first message counts the request.
#ifndef POSTBOX_EXTENSION_RULES_PUBLISH_METER_H_
#define POSTBOX_EXTENSION_RULES_PUBLISH_METER_H_

#include "extension/rules/histogram.h"

namespace postbox {

inline constexpr std::size_t kStatusCodes = 17;  // of gRPC, 0 is OK

struct PublishMeter {
  Counter sent;       // messages, once for each request that left with them
  Counter published;  // messages that the broker has taken
  // Requests by their status, from when they were handed to gRPC to their answer.
  std::array<Histogram, kStatusCodes> calls;
  // Batches by how they ended, from their first sending to the end of the last retry.
  std::array<Histogram, kStatusCodes> operations;
};

// Of a code of which nothing is known, too.
constexpr std::size_t StatusPlace(int code) {
  constexpr std::size_t kUnknown = 2;
  const auto place = static_cast<std::size_t>(code);
  return code >= 0 && place < kStatusCodes ? place : kUnknown;
}

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_RULES_PUBLISH_METER_H_
