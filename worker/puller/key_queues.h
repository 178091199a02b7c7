// What is in hand and not yet applied: messages in order of arrival, one key at a time.
//
//   - Messages of one ordering key leave in the order in which they came, and no message of a key
//     leaves while earlier ones are being applied: a key is busy from Take to Done or Fail.
//   - Messages without a key are independent of each other.
//   - A key whose message failed rests: the failed message and everything of the key behind it stay
//     here until the time given, and are then handed out by TakeExpired, in order, to be nacked.
// Pure logic, not thread-safe.
#ifndef POSTBOX_WORKER_PULLER_KEY_QUEUE_H_
#define POSTBOX_WORKER_PULLER_KEY_QUEUE_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "worker/pubsub/subscriber.h"
#include "worker/puller/received_event.h"

namespace postbox::puller {

struct Delivery {
  pubsub::ReceivedMessage message;  // without its data: that is the event's payload
  ReceivedEvent event;

  size_t bytes() const { return event.payload.size() + event.attributes.size(); }
  // Messages with the same lane are applied one after the other.
  std::string lane() const {
    return message.ordering_key.empty() ? "u" + std::to_string(message.handle)
                                        : "k" + message.ordering_key;
  }
};

class KeyQueue {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  void Push(Delivery delivery, TimePoint now);

  // How many messages Take could hand out, and since when the first of them has been waiting.
  size_t ready() const { return ready_messages_; }
  std::optional<TimePoint> ready_since() const;

  // At most `max_messages` and, beyond the first message, `max_bytes`. Their lanes are busy then.
  std::vector<Delivery> Take(size_t max_messages, size_t max_bytes);

  // All messages taken of this lane are settled.
  void Done(const std::string& lane, TimePoint now);
  // The first of `unsettled` failed; the others were taken with it and come after it in the lane.
  void Fail(const std::string& lane, std::vector<Delivery> unsettled, TimePoint nack_at);

  // The handles whose time to be nacked has come, each key's in order.
  std::vector<uint64_t> TakeExpired(TimePoint now);
  std::optional<TimePoint> NextExpiry() const;

  // Everything that is not being applied, to be nacked. In order per key.
  std::vector<uint64_t> Drain();

  bool empty() const { return lanes_.empty(); }

 private:
  struct Lane {
    std::deque<Delivery> waiting;
    enum { kReady, kBusy, kResting } state = kReady;
    TimePoint until{};  // kResting
  };

  void MakeReady(const std::string& name, Lane& lane, TimePoint now);

  std::unordered_map<std::string, Lane> lanes_;
  std::deque<std::pair<TimePoint, std::string>> ready_;  // lanes in state kReady, longest first
  size_t ready_messages_ = 0;
  std::set<std::pair<TimePoint, std::string>> resting_;
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_KEY_QUEUE_H_
