// The topics of a publisher, and whose turn it is to send.
//
//   - Topics take turns; within a topic its line decides (publish_topic.h).
//   - If there are several topics, each has a few requests guaranteed (fair_share.h). So a topic
//     that does not answer cannot hold all of them.
//   - If a topic is alone and answers soon, as many requests again as have streams may wait for one
//     in gRPC (channel_loads.h).
//
// Pure logic, without a clock.
#ifndef POSTBOX_WORKER_PUBSUB_PUBLISH_TOPIC_TURNS_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISH_TOPIC_TURNS_H_

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "worker/pubsub/publish/outgoing_queue.h"
#include "worker/pubsub/publish/publish_topic.h"
#include "worker/pubsub/publish/sent_requests.h"

namespace postbox::pubsub {

class TopicTurns {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Topics = std::map<std::string, std::unique_ptr<PublishTopic>, std::less<>>;

  // Makes it if there is none. Topics are few, and never removed.
  PublishTopic* Find(std::string_view name);
  const Topics& topics() const { return topics_; }

  // Puts the queue into its line if it could send.
  void MarkReady(OutgoingQueue* queue);
  // With queues in their line.
  const std::deque<PublishTopic*>& ready() const { return ready_; }
  // Takes the queue whose turn it is out of its line; null if none may send.
  OutgoingQueue* Next(SentRequests* sent, TimePoint now);
  // Takes all queues of the topic out of their line.
  void Remove(PublishTopic* topic);

  // Whether requests of the topic may wait for a stream.
  bool MayWait(const PublishTopic& topic, const SentRequests& sent) const;
  // When a topic that is down may send next, if one has to wait for that.
  std::optional<TimePoint> NextProbe(TimePoint now) const;

 private:
  PublishTopic* NextTopic(SentRequests* sent, TimePoint now);

  Topics topics_;
  PublishTopic* last_ = nullptr;  // of Find()
  std::deque<PublishTopic*> ready_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISH_TOPIC_TURNS_H_
