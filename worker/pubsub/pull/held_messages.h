// The messages that a subscriber has, from their arrival until they are settled.
//
//     kReceipt --confirmed--> kWaiting --handed on--> kInHand --> kAcked or kNacked --> settled
//
// They are handed on in the order in which they came. A message whose receipt is not confirmed
// holds up only those of its key. At most `most_messages` messages and `most_bytes` bytes are in
// hand, but one message of any size may always be.
//
// Pure logic, for the I/O thread; the caller passes the time.
#ifndef POSTBOX_WORKER_PUBSUB_PULL_HELD_MESSAGES_H_
#define POSTBOX_WORKER_PUBSUB_PULL_HELD_MESSAGES_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "proto/rules/trace_context.h"
#include "worker/pubsub/pull/key_gate.h"
#include "worker/pubsub/pull/pull_wire.h"
#include "worker/pubsub/pull/subscriber.h"

namespace postbox::pubsub {

struct HeldMessage : MessageIdentity {
  enum class State {
    kReceipt,  // exactly-once delivery: waits until its receipt is confirmed
    kWaiting,  // waits to be handed on
    kInHand,   // with the consumer
    kAcked,    // its ack is not settled yet
    kNacked,   // its nack is not settled yet
  };
  State state = State::kWaiting;
  bool handed_on = false;
  uint64_t position = 0;  // in its key (key_gate.h), since it was handed on
  int64_t bytes = 0;
  std::chrono::steady_clock::time_point received;
  std::unique_ptr<const TraceContext> trace;  // null: none, or none that is sampled
};

class HeldMessages {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  HeldMessages(int64_t most_messages, int64_t most_bytes)
      : most_messages_(most_messages), most_bytes_(most_bytes) {}

  bool empty() const { return messages_.empty(); }
  // Null: it is settled, or was never here.
  HeldMessage* Find(uint64_t handle);
  const HeldMessage* Find(uint64_t handle) const;

  // A message has arrived. Returns its handle. In the states kReceipt and kWaiting it is to be
  // handed on.
  uint64_t Add(PulledMessage pulled, HeldMessage::State state, TimePoint now);

  struct Ready {
    std::vector<ReceivedMessage> messages;  // these are in hand now
    std::vector<uint64_t> turned_away;      // by the gate; to be nacked
    bool full = false;                      // nothing more is to be read meanwhile
  };
  // What can be handed on. `gate`: null if the subscription is not ordered.
  Ready TakeReady(KeyGate* gate, TimePoint now);
  // No message is handed on any more. Returns those that waited for it, in their order.
  std::vector<uint64_t> TakeIncoming();
  // The consumer is done with a message. Null if it does not have it.
  HeldMessage* TakeFromHand(uint64_t handle);
  // In the order in which they came.
  std::vector<uint64_t> InHand() const;
  // It is settled, or its lease is lost. It may still have waited to be handed on.
  void Remove(uint64_t handle);

 private:
  // One that has arrived and was not handed on.
  struct Incoming {
    uint64_t handle = 0;
    ReceivedMessage message;
  };

  bool FitsBudget(int64_t bytes) const;

  const int64_t most_messages_;
  const int64_t most_bytes_;
  uint64_t last_handle_ = 0;
  absl::flat_hash_map<uint64_t, HeldMessage> messages_;  // by handle
  std::deque<Incoming> incoming_;  // kReceipt and kWaiting, in order of arrival
  int64_t in_hand_messages_ = 0;
  int64_t in_hand_bytes_ = 0;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PULL_HELD_MESSAGES_H_
