// The way of a message from its topic to the subscriptions. A topic takes the messages of a request
// together and delivers them when they are due: once their publisher was answered, and in the order
// in which they were taken. Without a mutex: guarded_state.h has it.
#ifndef POSTBOX_WORKER_EMULATOR_BROKER_TOPIC_DELIVERY_H_
#define POSTBOX_WORKER_EMULATOR_BROKER_TOPIC_DELIVERY_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "worker/emulator/broker/clock.h"
#include "worker/emulator/broker/resources.h"

namespace postbox::emulator {

class TopicDelivery {
 public:
  TopicDelivery(Clock clock, Journal* journal, RunIds* ids, Resources* resources)
      : clock_(std::move(clock)), journal_(*journal), ids_(*ids), resources_(*resources) {}
  TopicDelivery(const TopicDelivery&) = delete;
  TopicDelivery& operator=(const TopicDelivery&) = delete;

  // Stamps the messages and adds them to those that the topic has to deliver.
  std::shared_ptr<Undelivered> Enqueue(TopicState* topic,
                                       std::vector<std::shared_ptr<StoredMessage>> messages);
  // Delivers what is due, up to the first that is not.
  void DeliverDue(TopicState* topic, WakeList* wakes);
  // Delivers all that was accepted until `until`.
  void DeliverAll(TopicState* topic, absl::Time until, WakeList* wakes);
  // Must be called after each change of a subscription. Saves what has changed, publishes its dead
  // letters and collects the listeners to wake.
  void Finish(Feed* feed, WakeList* wakes);

  int64_t messages_published() const { return published_; }

 private:
  const Clock clock_;
  Journal& journal_;
  RunIds& ids_;
  Resources& resources_;
  int64_t published_ = 0;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_BROKER_TOPIC_DELIVERY_H_
