// Decides which messages are sent when. It is the pure logic of the publisher, without gRPC,
// threads or a clock.
//
// There is a queue for each (topic, ordering key), and one for each topic's messages without a key.
//   - A key has one request in flight. The messages that come meanwhile go into the next request,
//     at most kMaxRequestMessages messages and kMaxRequestBytes bytes, counted exactly. A key
//     stays on its channel as long as that has room (channel_loads.h).
//   - The messages of a topic without a key go out with several requests in flight, urgent ones
//     first. When keyless_requests are in flight, more if the way is long, only full ones follow.
//   - If as many requests are in flight as the round trip makes useful (request_window.h), queues
//     that could send wait for a free one. Topics take turns; within a topic it is first come,
//     first served, but a queue whose next message is urgent has every other turn. Their batches
//     grow meanwhile.
//   - If a topic is alone and answers soon, as many requests again, which are not urgent, wait in
//     gRPC for a stream (channel_loads.h).
//   - If there are several topics, each has a few requests guaranteed (fair_share.h). So a topic
//     that does not answer cannot hold all of them.
//
// A request ends in one of these ways (error_class.h):
//   OK            Every message is published. If the answer does not have one message id for each
//                 message, it is not valid, and the messages are kUnknown.
//   event broken  The request is cut into two halves, which are sent one after the other. A message
//                 that fails alone is kRejected.
//   topic broken  Its messages are kTopicBroken.
//   exhausted     The broker takes the messages of the key more slowly than they come, and has not
//                 taken these. They wait, and are sent in smaller requests (request_pace.h).
//   excused       The connection was lost while the request waited for a stream, or was to be
//                 closed; or it waited for one until less than half of an attempt's time was left.
//                 The request is sent again when it is its turn, a few times, as long as
//                 publish_timeout is not over.
//   retry         The same request is sent again after a backoff, until publish_timeout is over
//                 since it was first sent. Then its messages are kUnknown.
// A message that is kRejected from the start is not sent. Its result comes when it is its turn.
//
// Time counts from the first sending, that is from when a request has a stream, if it need not wait
// for that beyond `send_by`. A message may wait in its queue for as long as its `send_by` allows;
// if that is over, it is kBehind, and so is what follows of its key.
//
// A topic that gives no answer is down (topic_health.h). Then its requests are sent one at a time,
// and what fails goes to the end of the line instead of having a backoff of its own. When one
// request is answered, everything is sent. If that does not happen within publish_timeout,
// everything that waits is kUnreachable. So is what becomes too old before it had time for an
// attempt.
//
// A retry that goes through ends the backoff of all others of its topic, at most once a second.
//
// The first message of a key that is not published stops the key. All messages of the key behind
// it, and all that are added until Taken() was called for every message of the key, are kBehind.
// Then the queue is removed, and the failure with it.
//
// The results of a key come in the order of its messages.

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
#include "worker/pubsub/channel_loads.h"
#include "worker/pubsub/outgoing_message.h"
#include "worker/pubsub/request_window.h"

namespace postbox::pubsub {

class PublishScheduler {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Options {
    int channels = 64;  // at most; they are opened when they are needed
    // Google's front ends take 100 streams on a connection. More requests wait in gRPC while their
    // deadlines run.
    int streams_per_channel = 100;
    // So many requests may have a stream, if the channels have them, whatever the round trip is.
    std::size_t least_requests = 200;
    int keyless_requests = 8;  // for each topic, that are not full, if the broker is near
    std::chrono::milliseconds publish_timeout = std::chrono::seconds(60);
    BackoffPolicy backoff = kPublishBackoff;
  };

  // A (topic, key) with outstanding messages. Opaque. It lives until Taken() was called for all of
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
    std::optional<std::size_t> message_ids;  // their number; nothing if it cannot be read
  };

  // What the scheduler needs from its user. None of these functions may call the scheduler.
  class Host {
   public:
    virtual ~Host() = default;
    virtual TimePoint Now() = 0;
    virtual double Random() = 0;  // in [0, 1)
    // Sends the request. OnResponse() must be called for it later, exactly once. What `request`
    // refers to is valid only during the call.
    virtual void Send(const Request& request) = 0;
    // The answer to this request is no longer waited for: end it soon.
    virtual void Abort(std::uint64_t request_id) = 0;
    // Nothing is in flight on this channel, and it is not needed now.
    virtual void CloseChannel(int channel) = 0;
    // A message has its result in status and error. Taken() must be called when the caller has it.
    virtual void Deliver(OutgoingMessage* message, Queue* queue) = 0;
    // A request to a topic has failed, and none was answered since `since`.
    virtual void TopicFails(const std::string& topic, TimePoint since, TimePoint next_try,
                            const std::string& error) = 0;
    // One that failed answers again.
    virtual void TopicAnswers(const std::string& topic) = 0;
  };

  PublishScheduler(Options options, Host* host);
  ~PublishScheduler();

  PublishScheduler(const PublishScheduler&) = delete;
  PublishScheduler& operator=(const PublishScheduler&) = delete;

  // Adds a message. It is sent by Pump() at the earliest, so that messages that are added together
  // can share a request.
  void Add(OutgoingMessage* message);
  void Pump();

  // Requests that have not been answered.
  std::size_t in_flight() const { return in_flight_.size(); }
  // Whether something could be sent if there were a free request.
  bool AnyWaits() const { return !ready_.empty(); }
  std::size_t open_channels() const { return channels_.open(); }

  void OnResponse(std::uint64_t request_id, Response response);
  // The caller has this many more results of the queue.
  void Taken(Queue* queue, std::size_t messages);

  // The time at which OnTime() must be called next, if it must be.
  std::optional<TimePoint> NextWake() const;
  void OnTime();

  // Messages that are not in flight become kUnknown now. Requests in flight are aborted; their
  // messages have their results when the answers come.
  void Cancel();

 private:
  struct Topic;
  class Line;
  struct Batch {
    std::vector<OutgoingMessage*> messages;
    std::size_t size = 0;  // of the encoded request
    int attempts = 0;      // failed so far
    std::string last_error;
    bool cancelled = false;
    int excused = 0;                       // so often it failed for nothing of its own
    TimePoint send_by = TimePoint::max();  // the earliest of its messages
    std::optional<TimePoint> first_sent;
    std::optional<TimePoint> tried_at;  // its last attempt that had time enough
  };
  struct InFlight {
    Queue* queue;
    Batch batch;
    // Of this attempt.
    int channel = 0;
    bool connected = true;   // the channel, when it was sent
    bool has_stream = true;  // false: it waits for one in gRPC
    bool waited = false;     // has waited for it
    bool first = false;      // it has not been sent before, and waits
    bool has_time = false;   // at least half of what an attempt has, when it had its stream
    TimePoint until{};
    // Of its stream.
    std::uint64_t number = 0;
    TimePoint began{};
    bool few = false;  // had one then
  };

  Topic* FindTopic(std::string_view name);
  // Whose turn it is to send; null if none may.
  Topic* NextTopic();
  bool MaySend(const Topic& topic) const;
  // Whether requests of the topic may wait for a stream.
  bool MayWait(const Topic& topic) const;
  void Begin(InFlight* request);
  // Whether it failed since, as far as is known, the broker has not seen it, or too late.
  static bool IsExcused(const InFlight& request, const Response& response);
  // Whether the broker may have taken the messages of one that failed.
  static bool MaybeTaken(const InFlight& request, const Response& response);
  // A request has ended: its channel is free, and the answer says how long the way is.
  void Leave(std::uint64_t request_id, const InFlight& request, bool answered);
  TimePoint Deadline(const Batch& batch) const;
  // Of an attempt that has all its time.
  std::chrono::milliseconds AttemptTimeout() const;
  // So many requests of a topic's messages without a key may be in flight, and full ones.
  int KeylessRequests() const;
  Queue* FindQueue(const OutgoingMessage& message);
  void MaybeErase(Queue* queue);
  void MarkReady(Queue* queue);
  void SendNext(Queue* queue);
  bool FillBatch(Queue* queue, TimePoint now, Batch* batch);
  void Expire(Queue* queue, TimePoint now);
  void Failed(Queue* queue, Batch batch, const Response& response);
  void Published(Queue* queue, const Batch& batch);
  void Answered(Topic* topic);
  void Retry(Queue* queue, Batch batch);
  // Returns when.
  TimePoint RetryLater(Queue* queue, Batch batch);
  // After RESOURCE_EXHAUSTED.
  void SendSlower(Queue* queue, Batch batch);
  void Pause(Queue* queue);
  // Ends the backoff of everything of the topic that failed.
  void RetryNow(Topic* topic, TimePoint now);
  // Ends everything of a topic that is down, except for what is in flight.
  void GiveUp(Topic* topic, const std::string& error);
  // Sends the batch again, in two parts.
  void Bisect(Queue* queue, const Batch& batch);
  void Fail(Queue* queue, const Batch& batch, PublishStatus status, const std::string& error);
  void StopKey(Queue* queue, PublishStatus status, const std::string& error);
  // The batch is not waited for any longer.
  void End(Queue* queue, const Batch& batch);
  void Deliver(Queue* queue, OutgoingMessage* message, PublishStatus status,
               const std::string& error);
  std::string GaveUp(const Batch& batch) const;

  const Options options_;
  const std::chrono::milliseconds attempt_timeout_;
  Host* const host_;
  std::map<std::string, std::unique_ptr<Topic>, std::less<>> topics_;  // few; never removed
  Topic* last_topic_ = nullptr;                                        // of FindTopic()
  std::deque<Topic*> ready_;  // with queues that could send and wait for a free request
  absl::flat_hash_map<std::uint64_t, InFlight> in_flight_;
  std::multimap<TimePoint, InFlight> delayed_;  // wait for their next attempt
  std::multimap<TimePoint, Queue*> paused_;     // between two requests
  std::uint64_t last_request_ = 0;
  std::uint64_t last_stream_ = 0;
  std::size_t streams_ = 0;  // in use
  RequestWindow window_;
  ChannelLoads channels_;
  TimePoint last_sweep_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISH_SCHEDULER_H_
