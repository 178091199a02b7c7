#include "worker/pubsub/publish/topic_turns.h"

#include <algorithm>
#include <cstddef>

#include "extension/rules/fair_share.h"

namespace postbox::pubsub {

PublishTopic* TopicTurns::Find(std::string_view name) {
  // Most messages have the topic of the message before.
  if (last_ != nullptr && last_->name == name) return last_;
  auto at = topics_.find(name);
  if (at == topics_.end()) {
    at = topics_.emplace(name, std::make_unique<PublishTopic>(name)).first;
  }
  last_ = at->second.get();
  return last_;
}

void TopicTurns::MarkReady(OutgoingQueue* queue) {
  if (queue->ready || !queue->CanSend()) return;
  queue->ready = true;
  if (queue->topic->ready.empty()) ready_.push_back(queue->topic);
  queue->topic->ready.Push(queue);
}

OutgoingQueue* TopicTurns::Next(SentRequests* sent, TimePoint now) {
  PublishTopic* topic = NextTopic(sent, now);
  if (topic == nullptr) return nullptr;
  OutgoingQueue* queue = topic->ready.Pop();
  if (!topic->ready.empty()) ready_.push_back(topic);
  queue->ready = false;
  return queue;
}

PublishTopic* TopicTurns::NextTopic(SentRequests* sent, TimePoint now) {
  std::size_t limit = sent->window().limit();
  // What waits for a stream may wait behind a connection that is lost. It costs nothing, as
  // long as others find a stream.
  const bool free_stream = sent->channels().HasFreeStream();
  const auto held = [&](const PublishTopic& topic) {
    return free_stream ? topic.streams() : topic.in_flight;
  };
  std::size_t answering = free_stream ? sent->streams() : sent->size();
  if (topics_.size() > 1) {
    // What is guaranteed comes on top, and all together is what may be in flight. A topic that does
    // not answer, or has yet to, gets no more than that, and costs the others nothing.
    limit = limit * kGuaranteedPart / (kGuaranteedPart + 1);
    for (const auto& [name, topic] : topics_) {
      if (!topic->health.answers()) answering -= held(*topic);
    }
  }
  for (std::size_t i = 0; i < ready_.size(); ++i) {
    PublishTopic* topic = ready_.front();
    ready_.pop_front();
    const bool has_room = MayWait(*topic, *sent) ? sent->size() < 2 * sent->window().limit()
                          : topics_.size() == 1 || topic->health.answers()
                              ? MayTake(limit, topics_.size(), answering, held(*topic)) > 0
                              : topic->in_flight < Guaranteed(limit, topics_.size());
    const bool may_send = topic->MaySend(now);
    if (has_room && may_send) return topic;
    if (may_send) sent->NoteLimited();
    ready_.push_back(topic);
  }
  return nullptr;
}

void TopicTurns::Remove(PublishTopic* topic) {
  std::erase(ready_, topic);
  const std::deque<OutgoingQueue*> queues = topic->ready.All();
  topic->ready.Clear();
  for (OutgoingQueue* queue : queues) {
    queue->ready = false;
    topic->EraseIfUnused(queue);
  }
}

bool TopicTurns::MayWait(const PublishTopic& topic, const SentRequests& sent) const {
  // Behind its requests those of another would have to wait.
  const bool alone = topic.in_flight == sent.size() &&
                     std::all_of(ready_.begin(), ready_.end(),
                                 [&](const PublishTopic* ready) { return ready == &topic; });
  return alone && sent.MayWait(topic);
}

std::optional<TopicTurns::TimePoint> TopicTurns::NextProbe(TimePoint now) const {
  std::optional<TimePoint> next;
  for (const PublishTopic* topic : ready_) {
    // One whose time has come waits for a free request.
    if (topic->in_flight > 0 || topic->MaySend(now)) continue;
    next = std::min(next.value_or(TimePoint::max()), topic->health.next_probe());
  }
  return next;
}

}  // namespace postbox::pubsub
