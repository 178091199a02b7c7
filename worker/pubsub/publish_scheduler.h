// Decides what is sent when: the pure logic of the publisher, without gRPC, threads or clocks of
// its own.
//
// A queue per (topic, ordering key), and one per topic for messages without a key.
//   - A key has one request in flight. What piles up meanwhile goes into the next one: at most
//     kMaxRequestMessages and kMaxRequestBytes, counted exactly. A key keeps to one channel; keys
//     go over the channels in turn.
//   - A topic's messages without a key go out with several requests in flight.
//   - Queues that could send but find no free request (requests_per_channel * channels) wait in
//     line, first come first served, and what they hold grows into larger batches.
//
// A request ends in one of these ways (error_class.h):
//   OK            every message is published; another number of message ids than of messages is no
//                 answer to trust: kUnknown
//   event broken  the request is cut in two, the first half goes first; a message that fails alone
//                 is kRejected
//   topic broken  its messages are kTopicBroken
//   retry         the same request again after a backoff, until the deadline of its first message,
//                 then kUnknown
// A message that is kRejected beforehand is not sent: its result comes when its turn does.
//
// The first message of a key that is not published stops the key: all that is behind it, and all
// that is added until Taken() was called for every message of the key, is kBehind. Then the queue
// is forgotten, and with it the failure.
//
// Results of one key come out in the order of its messages, and every message has its result at its
// deadline, about.

#ifndef POSTBOX_WORKER_PUBSUB_PUBLISH_SCHEDULER_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISH_SCHEDULER_H_

#include <absl/container/flat_hash_map.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/rules/backoff.h"
#include "worker/pubsub/outgoing_message.h"

namespace postbox::pubsub {

class PublishScheduler {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Options {
    int channels = 2;
    // Google's front ends take 100 streams on a connection; more would wait inside gRPC with their
    // deadline running.
    int requests_per_channel = 100;
    int keyless_requests_per_channel = 4;  // for each topic
    std::chrono::milliseconds publish_timeout = std::chrono::seconds(60);
    BackoffPolicy backoff = kPublishBackoff;
  };

  // A (topic, key) with something outstanding. Opaque; lives until Taken() was called for all of
  // its messages.
  class Queue;

  struct Request {
    std::uint64_t id;
    int channel;
    const std::string& topic;
    const std::vector<OutgoingMessage*>& messages;
    std::size_t size;  // of the encoded request, bytes
    std::chrono::milliseconds timeout;
  };

  struct Response {
    int code = 0;
    std::string message;
    std::optional<std::size_t> message_ids;  // how many; nothing: the answer cannot be read
  };

  // What the scheduler needs from outside. None of these may call back into the scheduler before it
  // has returned.
  class Host {
   public:
    virtual ~Host() = default;
    virtual TimePoint Now() = 0;
    virtual double Random() = 0;  // in [0, 1)
    // Sends the request and calls OnResponse() later, once, in any case. What `request` refers to
    // may be used only here.
    virtual void Send(const Request& request) = 0;
    // The answer to this request is not worth waiting for any more.
    virtual void Abort(std::uint64_t request_id) = 0;
    // A message is done: status and error are set. Taken() is due when the caller has it.
    virtual void Deliver(OutgoingMessage* message, Queue* queue) = 0;
  };

  PublishScheduler(Options options, Host* host);
  ~PublishScheduler();

  PublishScheduler(const PublishScheduler&) = delete;
  PublishScheduler& operator=(const PublishScheduler&) = delete;

  // Takes messages in; nothing is sent before Pump(), so that what comes together goes together.
  void Add(OutgoingMessage* message);
  void Pump();

  // Requests that have not been answered.
  std::size_t in_flight() const { return in_flight_.size(); }

  void OnResponse(std::uint64_t request_id, Response response);
  // The caller has so many results of the queue.
  void Taken(Queue* queue, std::size_t messages);

  // When OnTime() wants to be called next, if ever.
  std::optional<TimePoint> NextWake() const;
  void OnTime();

  // Everything not in flight is kUnknown now; what is in flight is aborted and has its result when
  // the answer comes.
  void Cancel();

 private:
  struct Topic;
  struct Batch {
    std::vector<OutgoingMessage*> messages;
    std::size_t size = 0;  // of the encoded request
    int attempts = 0;      // failed so far
    std::string last_error;
    bool cancelled = false;

    TimePoint deadline() const { return messages.front()->deadline; }
  };
  struct InFlight {
    Queue* queue;
    Batch batch;
  };

  Topic* FindTopic(std::string_view name);
  Queue* FindQueue(const OutgoingMessage& message);
  void MaybeErase(Queue* queue);
  void MarkReady(Queue* queue);
  void SendNext(Queue* queue);
  bool FillBatch(Queue* queue, Batch* batch);
  void Expire(Queue* queue, TimePoint now);
  void Published(Queue* queue, const Batch& batch);
  void RetryLater(Queue* queue, Batch batch, const Response& response);
  void Bisect(Queue* queue, const Batch& batch);
  void Fail(Queue* queue, const Batch& batch, PublishStatus status, const std::string& error);
  void StopKey(Queue* queue, PublishStatus status, const std::string& error);
  void Deliver(Queue* queue, OutgoingMessage* message, PublishStatus status,
               const std::string& error);
  std::string GaveUp(const Batch& batch) const;

  const Options options_;
  const std::chrono::milliseconds attempt_timeout_;
  Host* const host_;
  std::map<std::string, std::unique_ptr<Topic>, std::less<>> topics_;  // few; never forgotten
  Topic* last_topic_ = nullptr;                                        // of FindTopic()
  std::deque<Queue*> ready_;  // could send, wait for a free request
  absl::flat_hash_map<std::uint64_t, InFlight> in_flight_;
  std::multimap<TimePoint, InFlight> delayed_;  // wait for their next attempt
  std::uint64_t last_request_ = 0;
  int next_channel_ = 0;
  TimePoint last_sweep_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISH_SCHEDULER_H_
