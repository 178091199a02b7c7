// A subscription as the broker has it: its state, and the calls that wait for its messages.
#ifndef POSTBOX_WORKER_EMULATOR_BROKER_FEED_H_
#define POSTBOX_WORKER_EMULATOR_BROKER_FEED_H_

#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "google/iam/v1/policy.pb.h"
#include "worker/emulator/subscription/subscription.h"

namespace postbox::emulator {

// A call that waits for messages. Wake() is called on any thread without locks held, and possibly
// without a message. It must not block.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void Wake() = 0;
};

using WakeList = std::vector<std::shared_ptr<Listener>>;

struct Feed {
  Feed(google::pubsub::v1::Subscription config, uint64_t incarnation, bool deliver_twice,
       DeadLetterQueue::TopicExists topic_exists)
      : state(std::move(config), incarnation, deliver_twice, std::move(topic_exists)) {}

  Subscription state;
  google::iam::v1::Policy policy;
  bool deleted = false;
  std::map<StreamId, std::shared_ptr<Listener>> streams;
  WakeList pulls;  // each is woken once

  void TakePulls(WakeList* wakes) {
    std::move(pulls.begin(), pulls.end(), std::back_inserter(*wakes));
    pulls.clear();
  }
  // Collects all calls, whether there are messages for them or not.
  void TakeAll(WakeList* wakes) {
    for (const auto& [id, listener] : streams) wakes->push_back(listener);
    TakePulls(wakes);
  }
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_BROKER_FEED_H_
