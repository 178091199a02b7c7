// Publishes messages to Pub/Sub: in order per key, in batches, with retries, and with a result for
// every message.
//
// Plain header: standard library only. The caller is one thread that never waits for the network
// and never calls gRPC. Publish() hands messages over, an eventfd tells that there are results, and
// TakeResults() returns them.
//
// Guarantees:
//   - Every message that Publish() took has exactly one result, at most publish_timeout after it
//     was first sent, or at its `send_by` if it was not sent by then, and 1 s more in which that is
//     noticed. So a lease that is longer than both together does not end before its message has a
//     result. What waits in gRPC for a stream counts as sent when it has that, or at `send_by`.
//   - The messages of a (topic, ordering key) are sent in the order in which they were handed over,
//     with one request in flight. The messages that come meanwhile go into the next request.
//     Different keys, and messages without a key, do not wait for each other.
//   - Errors that may pass are retried with backoff until publish_timeout. When nothing of a topic
//     goes through, there is one request at a time, every 1.5 s at least, and everything else goes
//     on as soon as one of them is answered.
//   - What the broker refuses with RESOURCE_EXHAUSTED waits, in smaller requests.
//   - A key stops at its first failure. When a message of a key has become kRejected, kTopicBroken,
//     kUnknown or kUnreachable, every other message of the key that has no result yet, and every
//     one that is handed over later, becomes kBehind without being sent. (The messages of one
//     failed request share its status.) The key can be used again when none of its messages is
//     outstanding, that is, when TakeResults() has returned all of them. By then the caller knows
//     of the failure and decides what to send next.
//   - A message with kPublished was published at least once. A message with kUnknown or
//     kUnreachable may have been published. Any other message was not published by its last
//     attempt; an earlier attempt whose answer was lost may have published it.
//
// Threads: Create() starts one I/O thread with every signal blocked. gRPC is first called on that
// thread, so the threads that gRPC starts inherit the mask. A publisher must not be used by several
// threads at the same time.

#ifndef POSTBOX_WORKER_PUBSUB_PUBLISH_PUBLISHER_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISH_PUBLISHER_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "extension/rules/publish_meter.h"
#include "proto/rules/endpoint.h"
#include "worker/pubsub/auth/credential_spec.h"
#include "worker/pubsub/publish/outgoing_message.h"
#include "worker/pubsub/traces/span.h"

namespace postbox::pubsub {

// A topic of which requests fail, with errors that may pass, and none was answered.
struct FailingTopic {
  std::string topic;
  std::chrono::steady_clock::time_point since;  // when the first of them failed
  std::chrono::steady_clock::time_point next_try;
  std::string error;  // of the last one, '<CODE>: text'
};

struct PublisherOptions {
  // Smaller requests do not become shorter. The official clients have the same limit.
  static constexpr std::size_t kLeastCompressed = 240;

  Endpoint endpoint;
  CredentialSpec credential;  // not looked at if the endpoint is plain text
  int channels = 64;          // connections at most, 1..256; they are opened when they are needed
  // The most messages that Publish() took and TakeResults() has not returned.
  std::size_t max_outstanding_messages = 20'000;
  std::size_t max_outstanding_bytes = 64 << 20;  // of those without a result, in wire format
  // From the first sending of a message.
  std::chrono::milliseconds publish_timeout = std::chrono::seconds(60);
  std::string quota_project;  // x-goog-user-project; empty: that of the credentials file, if any
  bool compression = false;   // gzip, for requests of kLeastCompressed bytes at least
  // Where it counts what it does, by OutgoingMessage::meter; they live as long. Null: nowhere.
  PublishMeter* meters = nullptr;
  // An eventfd that the caller owns, or -1. 1 is written to it when there are results, and when
  // FailingTopics() has changed.
  int notify_fd = -1;
  std::shared_ptr<SpanSink> spans;  // null: there are no traces
};

class Publisher {
 public:
  // Starts the thread. Looks for credentials if the endpoint is not plain
  // text: it reads files and may ask the metadata server, which takes one or two seconds. It does
  // not connect. On failure returns null and puts one sentence into `error`.
  static std::unique_ptr<Publisher> Create(PublisherOptions options, std::string* error);

  // Cancels the requests in flight and joins the thread, which takes a few seconds at most.
  // Messages without a result are not used any more; they may or may not have been published.
  ~Publisher();

  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  // Takes as many messages from the front as the limits of the options allow, and returns their
  // number. If nothing is outstanding it takes at least one, so a message larger than the limit is
  // published alone. The messages must not be moved or freed until TakeResults() returns them or
  // the publisher is destroyed.
  std::size_t Publish(std::span<OutgoingMessage* const> messages);
  bool Publish(OutgoingMessage* message) { return Publish(std::span(&message, 1)) == 1; }

  // The messages that have a result now, in the order of the results. For one key that is the order
  // in which they were handed over.
  std::vector<OutgoingMessage*> TakeResults();

  // The number of messages that Publish() took and TakeResults() has not returned yet.
  std::size_t outstanding() const;

  // Topics that answer no request now.
  std::vector<FailingTopic> FailingTopics() const;
  // Whether there are any. Costs nothing.
  bool AnyFails() const;

  // Whose identity the requests have. Any thread.
  CredentialState Credential() const;

  // Ends all messages handed over so far soon. Those that are not published by then become
  // kUnknown. The publisher can be used afterwards.
  void Cancel();

 private:
  class Impl;
  explicit Publisher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISH_PUBLISHER_H_
