// A message that is published to Pub/Sub, and its result.
//
// One object holds both. The caller owns it and does not move it; the publisher passes a pointer to
// it around. So many small messages with many keys need no copies, and no memory that one thread
// allocates and another frees. The caller may derive from the class to have its own data at hand
// when the result comes.

#ifndef POSTBOX_WORKER_PUBSUB_PUBLISH_OUTGOING_MESSAGE_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISH_OUTGOING_MESSAGE_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "proto/rules/attributes.h"
#include "worker/pubsub/publish/prefetch.h"

namespace postbox::pubsub {

enum class PublishStatus : std::uint8_t {
  kPublished,    // acknowledged by the broker
  kRejected,     // this message alone is refused, and will never be taken as it is: it exceeds a
                 // limit, or a request with it alone ended with INVALID_ARGUMENT
  kBehind,       // an earlier message of its key failed, or `send_by` is over: not sent, or
                 // refused with RESOURCE_EXHAUSTED
  kTopicBroken,  // NOT_FOUND, PERMISSION_DENIED, UNAUTHENTICATED, FAILED_PRECONDITION: the
                 // message is not at fault
  kUnknown,      // publish_timeout is over while the topic answered others, or it was cancelled, or
                 // the answer is not valid: the broker may or may not have taken the message
  kUnreachable,  // the same, and the topic answered nothing: the message is not at fault
};

// Two cache lines (prefetch.h). The members that are used again after a message has waited stand in
// the first one.
struct alignas(kCacheLine) OutgoingMessage {
  // The PubsubMessage in wire format, ordering key included. It does not change from
  // Publisher::Publish() until TakeResults() returns the message, and neither do topic and
  // ordering_key.
  std::string encoded;

  // The result. Before that it is kUnknown, or kRejected if the message must not be sent. In the
  // second case the result, kRejected and `error`, comes when it is the message's turn.
  PublishStatus status = PublishStatus::kUnknown;

  // It goes out before the messages of other keys that wait. They have every other turn.
  bool urgent = false;

  // A request with it had no answer that says whether the broker has taken it.
  bool maybe_taken = false;
  // Its attributes name a sampled trace, in which the requests with it are shown.
  bool traced = false;
  // So often it was sent again after that.
  std::uint16_t sent_again = 0;
  // Which of PublisherOptions::meters counts it, from 1; 0: none does.
  std::uint16_t meter = 0;

  // A message that is not sent by then is not sent any more. By default it waits for its turn as
  // long as it takes. publish_timeout counts from its first sending.
  std::chrono::steady_clock::time_point send_by = std::chrono::steady_clock::time_point::max();

  std::string_view topic;    // full name, projects/P/topics/T; lives as long
  std::string ordering_key;  // empty: no order

  std::string error;  // '<CODE>: text', empty if published
};

// Encodes a message, whose attributes have distinct names, and checks it against the limits of
// Pub/Sub. A message that breaks one is kRejected. `topic` must outlive the message.
OutgoingMessage MakeOutgoingMessage(std::string_view topic, std::string ordering_key,
                                    std::string_view data, const Attributes& attributes);

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISH_OUTGOING_MESSAGE_H_
