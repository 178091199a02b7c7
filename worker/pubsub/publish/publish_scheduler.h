// Decides which messages are sent when. It is the pure logic of the publisher, without gRPC,
// threads or a clock.
//
// There is a queue for each (topic, ordering key), and one for each topic's messages without a key.
//   - A key has one request in flight. The messages that come meanwhile go into the next request,
//     at most kMaxRequestMessages messages and kMaxRequestBytes bytes, counted exactly. A key
//     stays on its channel as long as that has room (channel_loads.h).
//   - The messages of a topic without a key go out with several requests in flight, urgent ones
//     first. When keyless_requests are in flight, more if the way is long, only full ones follow.
//   - If as many requests are in flight as are useful, queues that could send wait in line
//     (topic_turns.h). Their batches grow meanwhile.
//
// Its parts: TopicTurns says whose turn it is, OutgoingQueue what goes into the next request of a
// queue, SentRequests which channel and stream a request has. PublishDelays has what waits for a
// time, PublishResults gives the messages their results. The scheduler decides what follows an
// answer.
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
// Time counts from the first sending (sent_requests.h). A message may wait in its queue for as long
// as its `send_by` allows; if that is over, it is kBehind, and so is what follows of its key.
//
// A topic that gives no answer is down (topic_health.h). Then its requests are sent one at a time,
// and what fails goes to the end of the line instead of having its own backoff. When one
// request is answered, everything is sent. If that does not happen within publish_timeout,
// everything that waits is kUnreachable. So is what becomes too old before it had time for an
// attempt.
//
// A retry that goes through ends the backoff of all others of its topic, at most once a second.

#ifndef POSTBOX_WORKER_PUBSUB_PUBLISH_PUBLISH_SCHEDULER_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISH_PUBLISH_SCHEDULER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "extension/rules/backoff.h"
#include "worker/pubsub/publish/metering.h"
#include "worker/pubsub/publish/outgoing_message.h"
#include "worker/pubsub/publish/publish_delays.h"
#include "worker/pubsub/publish/publish_host.h"
#include "worker/pubsub/publish/publish_results.h"
#include "worker/pubsub/publish/sent_requests.h"
#include "worker/pubsub/publish/topic_turns.h"

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
    PublishMeter* meters = nullptr;  // as PublisherOptions has them
  };

  struct Response {
    int code = 0;
    std::string message;
    std::optional<std::size_t> message_ids;  // their number; nothing if it cannot be read
    bool begun = true;                       // false: gRPC has never had the request
  };

  PublishScheduler(const Options& options, PublishHost* host);

  PublishScheduler(const PublishScheduler&) = delete;
  PublishScheduler& operator=(const PublishScheduler&) = delete;

  // Adds a message. It is sent by Pump() at the earliest, so that messages that are added together
  // can share a request.
  void Add(OutgoingMessage* message);
  void Pump();

  // Requests that have not been answered.
  std::size_t in_flight() const { return sent_.size(); }
  // Whether something could be sent if there were a free request.
  bool AnyWaits() const { return !turns_.ready().empty(); }
  std::size_t open_channels() const { return sent_.channels().open(); }

  void OnResponse(std::uint64_t request_id, Response response);
  // The caller has this many more results of the queue.
  void Taken(OutgoingQueue* queue, std::size_t messages);

  // The time at which OnTime() must be called next, if it must be.
  std::optional<TimePoint> NextWake() const;
  void OnTime();

  // Messages that are not in flight become kUnknown now. Requests in flight are aborted; their
  // messages have their results when the answers come.
  void Cancel();

 private:
  // So many requests of a topic's messages without a key may be in flight, and full ones.
  int KeylessRequests(TimePoint now) const;
  void SendNext(OutgoingQueue* queue, TimePoint now);
  void Published(OutgoingQueue* queue, const OutgoingBatch& batch, TimePoint now);
  void Failed(OutgoingQueue* queue, OutgoingBatch batch, const Response& response, TimePoint now);
  // Returns when it is tried next.
  TimePoint RetryLater(OutgoingQueue* queue, OutgoingBatch batch, TimePoint now);
  void Retry(OutgoingQueue* queue, OutgoingBatch batch, TimePoint now);
  // After RESOURCE_EXHAUSTED.
  void SendSlower(OutgoingQueue* queue, OutgoingBatch batch, TimePoint now);
  void SendAgain(std::vector<PublishDelays::Retry> retries);
  // Ends the backoff of everything of the topic that failed.
  void RetryNow(PublishTopic* topic, TimePoint now);
  // The broker works, as an answer to a request of this topic shows.
  void Answered(PublishTopic* topic, TimePoint now);
  // Ends everything of a topic that is down, except for what is in flight.
  void GiveUp(PublishTopic* topic, const std::string& error);

  const Options options_;
  const std::chrono::milliseconds attempt_timeout_;
  const Metering metering_;
  PublishHost* const host_;
  TopicTurns turns_;
  SentRequests sent_;
  PublishDelays delays_;
  PublishResults results_;
  TimePoint last_sweep_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISH_PUBLISH_SCHEDULER_H_
