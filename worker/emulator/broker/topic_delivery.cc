#include "worker/emulator/broker/topic_delivery.h"

namespace postbox::emulator {

std::shared_ptr<Undelivered> TopicDelivery::Enqueue(
    TopicState* topic, std::vector<std::shared_ptr<StoredMessage>> messages) {
  const absl::Time now = clock_();
  for (std::shared_ptr<StoredMessage>& message : messages) {
    const uint64_t sequence = ids_.NextSequence();
    Stamp(sequence, ids_.MessageId(sequence), now, message.get());
    message = journal_.Keep(std::move(message));
    journal_.MessageTaken(topic->proto.name(), *message);
  }
  published_ += static_cast<int64_t>(messages.size());
  topic->undelivered.push_back(std::make_shared<Undelivered>(
      Undelivered{topic->proto.name(), std::move(messages), now, /*due=*/false}));
  return topic->undelivered.back();
}

void TopicDelivery::DeliverDue(TopicState* topic, WakeList* wakes) {
  while (!topic->undelivered.empty() && topic->undelivered.front()->due) {
    const std::shared_ptr<Undelivered> next = std::move(topic->undelivered.front());
    topic->undelivered.pop_front();
    const std::string& topic_name = topic->proto.name();
    journal_.Delivered(topic_name, next->messages.back()->sequence);
    for (const auto& [name, feed] : topic->feeds) {
      for (const std::shared_ptr<StoredMessage>& message : next->messages) feed->state.Add(message);
      Finish(feed.get(), wakes);
    }
    if (topic->proto.has_message_retention_duration()) {
      topic->retained.insert(topic->retained.end(), next->messages.begin(), next->messages.end());
      for (const auto& each : next->messages) journal_.Retained(topic_name, each->sequence, true);
    }
    for (auto& [name, snapshot] : resources_.snapshots()) {
      if (snapshot.proto.topic() != topic_name) continue;
      snapshot.unacked.insert(snapshot.unacked.end(), next->messages.begin(), next->messages.end());
      for (const auto& each : next->messages) journal_.SnapshotHas(name, each->sequence);
    }
  }
}

void TopicDelivery::DeliverAll(TopicState* topic, absl::Time until, WakeList* wakes) {
  for (const auto& messages : topic->undelivered) {
    if (messages->accepted <= until) messages->due = true;
  }
  DeliverDue(topic, wakes);
}

void TopicDelivery::Finish(Feed* feed, WakeList* wakes) {
  resources_.SaveEntries(feed);
  for (const DeadLetter& letter : feed->state.TakeDeadLetters()) {
    TopicState* topic = resources_.FindTopic(letter.topic);
    if (topic == nullptr) continue;
    Enqueue(topic, {MakeStoredMessage(letter.message)})->due = true;
    DeliverDue(topic, wakes);
  }
  for (const auto& [id, listener] : feed->streams) {
    if (feed->state.HasWork(id)) wakes->push_back(listener);
  }
  if (!feed->pulls.empty() && feed->state.HasPullWork()) feed->TakePulls(wakes);
}

}  // namespace postbox::emulator
