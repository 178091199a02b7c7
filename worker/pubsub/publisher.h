// Publishes messages to Pub/Sub: ordered per key, batched, retried, with a result for every
// message.
//
// Plain header: standard library only. The caller is one thread that never waits on the network and
// calls nothing of gRPC: Publish() hands a message over, an eventfd says that results wait,
// TakeResults() fetches them.
//
// What holds:
//   - Every message that Publish() took has exactly one result, in bounded time: publish_timeout
//   after it was taken
//     (+ the few milliseconds a cancelled call needs). A lease longer than that is never outlived
//     by its message.
//   - Messages of one (topic, ordering key) are sent in the order they were handed over, one
//   request in flight; all that
//     piled up meanwhile goes into the next request. Different keys, and messages without a key, do
//     not wait for each other.
//   - What a broker or a network may mend is retried inside, with backoff, until publish_timeout.
//   - A key stops at its first failure. Once a message of a key has kRejected, kTopicBroken or
//   kUnknown, every other
//     message of that key which has no result yet, and every one handed over from then on, becomes
//     kBehind without being sent (the messages of one failed request share its status). The key is
//     clean again as soon as none of its messages is outstanding, that is, TakeResults() has
//     returned all of them: the caller then knows, and decides what to send next.
//   - A message has been published at least once if its status is kPublished, may have been with
//   kUnknown, has not
//     been otherwise (kTopicBroken and kRejected speak of the last attempt: an earlier one whose
//     answer was lost may have gone through).
//
// Threads: Create() starts one I/O thread with every signal blocked; gRPC is first called from it,
// so the threads that gRPC makes inherit the mask. Not safe for use by several threads at once.

#ifndef POSTBOX_WORKER_PUBSUB_PUBLISHER_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISHER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "worker/pubsub/endpoint.h"

namespace postbox::pubsub {

enum class PublishStatus {
  kPublished,  // acknowledged by the broker; message_id is set
  kRejected,   // this message alone is refused (INVALID_ARGUMENT after bisecting, or over a limit):
               // never as it is
  kBehind,     // not sent: an earlier message of its key failed
  kTopicBroken,  // NOT_FOUND, PERMISSION_DENIED, UNAUTHENTICATED, FAILED_PRECONDITION: nothing is
                 // wrong with the message
  kUnknown,  // publish_timeout is over, or cancelled, or the answer makes no sense: it may or may
             // not have been taken
};

struct Message {
  std::uint64_t tag = 0;     // the caller's; comes back in the result
  std::string topic;         // full name: projects/P/topics/T
  std::string ordering_key;  // empty: no order
  std::string data;
  std::vector<std::pair<std::string, std::string>> attributes;  // distinct keys
  // If not empty: the PubsubMessage in wire format (EncodeMessage() in message_wire.h), which stands
  // for data, attributes and ordering key. Who has a message's parts at hand saves the copies; he
  // answers for their limits, the broker has the last word.
  std::string encoded;
};

struct PublishResult {
  std::uint64_t tag = 0;
  PublishStatus status = PublishStatus::kUnknown;
  std::string error;       // '<CODE>: text', empty if published
  std::string message_id;  // if published
};

struct PublisherOptions {
  Endpoint endpoint;
  int channels = 2;  // connections, 1..16
  std::size_t max_outstanding_messages =
      10'000;  // taken by Publish() and not yet returned by TakeResults()
  std::size_t max_outstanding_bytes = 64 << 20;  // of messages without a result, in wire format
  std::chrono::milliseconds publish_timeout = std::chrono::seconds(60);
  std::string quota_project;  // x-goog-user-project; empty: the one in the credentials file, if any
  int notify_fd =
      -1;  // an eventfd, stays the caller's: 1 is written to it when results wait; -1: none
};

class Publisher {
 public:
  // Starts the thread and makes the channels. Looks for credentials if the endpoint is not plain
  // text (reads files, may ask the metadata server: a second or two), but does not connect. Returns
  // null and one sentence in `error` on failure.
  static std::unique_ptr<Publisher> Create(PublisherOptions options, std::string* error);

  // Cancels what is in flight and joins the thread; a few seconds at most. Results not taken are
  // lost: their messages may or may not have been published.
  ~Publisher();

  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  // Takes a message over, or returns false and leaves it untouched if it does not fit the budget.
  // Always takes one when nothing is outstanding, so a message larger than the budget goes through
  // alone.
  bool Publish(Message&& message);
  bool Publish(const Message& message) { return Publish(Message(message)); }

  // The same for many at once, which costs one lock: takes as many from the front as fit, and
  // returns how many those were. The others are untouched.
  std::size_t Publish(std::span<Message> messages);

  // The results that are there now, in the order they came about; for one key that is the order of
  // handing over.
  std::vector<PublishResult> TakeResults();

  // Messages taken by Publish() whose result TakeResults() has not returned yet.
  std::size_t outstanding() const;

  // Ends everything handed over so far soon: what is not published by then becomes kUnknown. The
  // publisher stays usable.
  void Cancel();

 private:
  class Impl;
  explicit Publisher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISHER_H_
