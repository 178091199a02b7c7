// Publishes messages to Pub/Sub: ordered per key, batched, retried, with a result for every
// message.
//
// Plain header: standard library only. The caller is one thread that never waits on the network and
// calls nothing of gRPC: Publish() hands messages over, an eventfd says that results wait,
// TakeResults() fetches them.
//
// What holds:
//   - Every message that Publish() took has exactly one result, in bounded time: publish_timeout
//     after it was taken (and the tenth of a second in which that is noticed). A lease longer than
//     that is never outlived by its message.
//   - Messages of one (topic, ordering key) are sent in the order they were handed over, one
//     request in flight; all that piled up meanwhile goes into the next request. Different keys,
//     and messages without a key, do not wait for each other.
//   - What a broker or a network may mend is retried inside, with backoff, until publish_timeout.
//   - A key stops at its first failure. Once a message of a key has kRejected, kTopicBroken or
//     kUnknown, every other message of that key which has no result yet, and every one handed over
//     from then on, becomes kBehind without being sent (the messages of one failed request share
//     its status). The key is clean again as soon as none of its messages is outstanding, that is,
//     TakeResults() has returned all of them: the caller then knows, and decides what to send next.
//   - A message has been published at least once if its status is kPublished, may have been with
//     kUnknown, has not been otherwise (kTopicBroken and kRejected speak of the last attempt: an
//     earlier one whose answer was lost may have gone through).
//
// Threads: Create() starts one I/O thread with every signal blocked; gRPC is first called from it,
// so the threads that gRPC makes inherit the mask. Not safe for use by several threads at once.

#ifndef POSTBOX_WORKER_PUBSUB_PUBLISHER_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISHER_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "proto/rules/endpoint.h"
#include "worker/pubsub/outgoing_message.h"

namespace postbox::pubsub {

struct PublisherOptions {
  Endpoint endpoint;
  int channels = 2;  // connections, 1..16
  // Of messages that Publish() took and TakeResults() has not returned.
  std::size_t max_outstanding_messages = 20'000;
  std::size_t max_outstanding_bytes = 64 << 20;  // of messages without a result, in wire format
  std::chrono::milliseconds publish_timeout = std::chrono::seconds(60);
  std::string quota_project;  // x-goog-user-project; empty: the one in the credentials file, if any
  // An eventfd, stays the caller's: 1 is written to it when results wait; -1: none.
  int notify_fd = -1;
};

class Publisher {
 public:
  // Starts the thread and makes the channels. Looks for credentials if the endpoint is not plain
  // text (reads files, may ask the metadata server: a second or two), but does not connect. Returns
  // null and one sentence in `error` on failure.
  static std::unique_ptr<Publisher> Create(PublisherOptions options, std::string* error);

  // Cancels what is in flight and joins the thread; a few seconds at most. Messages without a
  // result are not touched any more: they may or may not have been published.
  ~Publisher();

  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  // Hands over as many messages from the front as fit the budget, and returns how many those were.
  // At least one when nothing is outstanding, so a message larger than the budget goes through
  // alone. Those must stay where they are until TakeResults() returns them or the publisher is
  // gone.
  std::size_t Publish(std::span<OutgoingMessage* const> messages);
  bool Publish(OutgoingMessage* message) { return Publish(std::span(&message, 1)) == 1; }

  // The messages whose results are there now, in the order they came about; for one key that is the
  // order of handing over.
  std::vector<OutgoingMessage*> TakeResults();

  // Messages taken by Publish() that TakeResults() has not returned yet.
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
