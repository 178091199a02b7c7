// A message on its way to Pub/Sub, and what became of it.
//
// One object all the way. It stays the caller's and where it is: the publisher passes a pointer
// around and takes nothing apart, so that many small messages with many keys cost no copies and no
// memory that one thread takes and another gives back. The caller may derive from it to have his
// own data at hand when the result comes.

#ifndef POSTBOX_WORKER_PUBSUB_OUTGOING_MESSAGE_H_
#define POSTBOX_WORKER_PUBSUB_OUTGOING_MESSAGE_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "proto/rules/attributes.h"

namespace postbox::pubsub {

enum class PublishStatus : std::uint8_t {
  kPublished,    // acknowledged by the broker
  kRejected,     // this message alone is refused (INVALID_ARGUMENT after bisecting, or over a
                 // limit): never as it is
  kBehind,       // not sent: an earlier message of its key failed
  kTopicBroken,  // NOT_FOUND, PERMISSION_DENIED, UNAUTHENTICATED, FAILED_PRECONDITION: nothing is
                 // wrong with the message
  kUnknown,      // publish_timeout is over, or cancelled, or the answer makes no sense: it may or
                 // may not have been taken
};

// Two cache lines. What is looked at again after a message has waited stands in the first.
struct alignas(64) OutgoingMessage {
  // The PubsubMessage in wire format, ordering key included. Nobody changes it, nor topic and key, from
  // Publisher::Publish() until TakeResults() returns the message.
  std::string encoded;

  // The result. Beforehand kUnknown, or kRejected if it must not be sent: then its result will be that,
  // with `error`, when its turn comes.
  PublishStatus status = PublishStatus::kUnknown;

  // Set by the publisher when it takes the message: until then there will be a result.
  std::chrono::steady_clock::time_point deadline;

  std::string_view topic;    // full name, projects/P/topics/T; lives as long
  std::string ordering_key;  // empty: no order

  std::string error;  // '<CODE>: text', empty if published
};

// Encodes a message, whose attributes have distinct keys, and checks it against the limits of Pub/Sub: if it breaks one, it is kRejected.
// `topic` must outlive the message.
OutgoingMessage MakeOutgoingMessage(std::string_view topic, std::string ordering_key,
                                    std::string_view data, const Attributes& attributes);

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_OUTGOING_MESSAGE_H_
