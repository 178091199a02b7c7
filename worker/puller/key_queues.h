// The messages that the puller holds and has not applied yet: a queue for each key.
//
//   - Messages of one ordering key leave in the order in which they arrived. No message of a key
//     leaves while earlier ones are being applied: a queue is busy from Take to Done or Fail.
//   - Messages without a key are independent of each other. Each has its own queue.
//   - A message that has failed before, a suspect, leaves alone: what makes it fail may take as
//     long as a statement may, and its batch-mates would wait with it.
//   - A failure suspends the key's queue. The failed message and everything behind it stay in the
//     queue until retry_at. TakeSuspended then hands them out, in order, to be nacked. The service
//     delivers them again. The key is forgotten then. So TakeSuspended is called where its gate is
//     closed in the same step (work_queue.h).
//
//   - A queue that begins with an event of a suspended type is held, without a limit of time, until
//     Release, or until GiveBack makes it like one that has failed.
//
// Pure logic without a clock. Not thread-safe.
#ifndef POSTBOX_WORKER_PULLER_KEY_QUEUES_H_
#define POSTBOX_WORKER_PULLER_KEY_QUEUES_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "worker/pubsub/pull/subscriber.h"
#include "worker/puller/received_event.h"

namespace postbox::puller {

// Why an event is given up.
struct EventFailure {
  std::string sqlstate;
  std::string error;
  int attempts = 0;
};

struct Delivery {
  pubsub::ReceivedMessage message;
  ReceivedEvent event;
  bool suspect = false;
  bool probe = false;  // of a suspended type: it is tried nevertheless (consumer_health.h)
  // The event was given up, and is only to be recorded in postbox.dead_letter.
  std::optional<EventFailure> given_up;

  // Empty if the event has none.
  std::string_view type() const { return event.event_type.value_or(std::string_view()); }
  // What the event is about: the aggregate, or else what its messages have in common.
  std::string subject() const {
    if (!event.aggregate_id) {
      return std::string(message.ordering_key.empty() ? message.message_id : message.ordering_key);
    }
    std::string name(event.aggregate_type.value_or(std::string_view()));
    return (name += '\0') += *event.aggregate_id;
  }
  size_t bytes() const { return event.payload.size() + event.attributes.size(); }
  // The name of its queue. Messages of one queue are applied one after the other. The first letter
  // keeps an ordering key from being taken for a handle.
  std::string queue_key() const {
    if (message.ordering_key.empty()) return "u" + std::to_string(message.handle);
    std::string key = "k";
    return key += message.ordering_key;
  }
};

// What waits of an event type.
struct WaitingEvents {
  int64_t events = 0;
  int64_t versions = 0;  // the most that one aggregate lags behind, by those of one queue
  std::chrono::system_clock::time_point oldest = std::chrono::system_clock::time_point::max();
};

class KeyQueues {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  void Push(Delivery delivery, TimePoint now);

  // The number of messages that Take could hand out, and the time since which the first of their
  // queues has been ready.
  size_t ready() const { return ready_messages_; }
  std::optional<TimePoint> ready_since() const;
  // The time since which the first queue that begins with a suspect has been ready.
  std::optional<TimePoint> suspect_since() const;

  // At most `max_messages` messages of at most `max_bytes` bytes together; the first message may be
  // larger. No suspects. Their queues are busy afterwards.
  std::vector<Delivery> Take(size_t max_messages, size_t max_bytes);
  // The suspect that has been ready longest. There must be one. Its queue is busy afterwards.
  std::vector<Delivery> TakeSuspect();

  // All messages taken from this queue are settled, or were put back.
  void Done(const std::string& queue_key, TimePoint now);
  // These messages were taken together, in this order, and are the first of the queue again. It
  // stays busy.
  void PutBack(const std::string& queue_key, std::vector<Delivery> unsettled);
  // The first of `unsettled` failed. The others were taken together with it and come after it in
  // the queue.
  void Fail(const std::string& queue_key, std::vector<Delivery> unsettled, TimePoint retry_at);

  // These were taken together, are the first of the queue, and wait for Release.
  void Hold(const std::string& queue_key, std::vector<Delivery> unsettled);
  // So do the queues that wait for retry_at with an event of the type. Returns them.
  std::vector<std::string> HoldFailed(std::string_view type);
  // The queue, which is held, is ready. `probe`: its first message is one.
  void Release(const std::string& queue_key, bool probe, TimePoint now);
  // The queue, which is held, waits for retry_at. False if the service counts the deliveries of its
  // messages, and would send them to a dead-letter topic after some: then it stays held.
  bool GiveBack(const std::string& queue_key, TimePoint retry_at);
  // What the queues have that are held.
  size_t held_messages() const { return held_messages_; }
  size_t held_bytes() const { return held_bytes_; }

  // The handles of the messages whose retry_at has come, to be nacked. The messages of a key are in
  // order.
  std::vector<uint64_t> TakeSuspended(TimePoint now);
  // The earliest retry_at of a suspended queue, if there is one.
  std::optional<TimePoint> NextRetry() const;

  // The handles of all messages that are not being applied, to be nacked. The messages of a key are
  // in order.
  std::vector<uint64_t> Drain();

  bool empty() const { return queues_.empty(); }
  // The messages that are not being applied, by type; those that are no event have the type "".
  std::map<std::string, WaitingEvents, std::less<>> Waiting() const;

 private:
  struct KeyQueue {
    std::list<Delivery> waiting;  // a deque allocates twice for the one message of most
    enum { kReady, kReadySuspect, kBusy, kSuspended, kHeld } state = kReady;
  };

  void MakeReady(KeyQueue& queue, TimePoint now);
  void MakeHeld(KeyQueue& queue);
  // Its messages count as held no longer.
  void Unhold(const KeyQueue& queue);
  // Moves the first message of the queue out of it.
  Delivery TakeFirst(KeyQueue* queue);

  std::unordered_map<std::string, KeyQueue> queues_;
  // The queues in state kReady and since when; the one that has been ready longest comes first.
  std::deque<std::pair<TimePoint, KeyQueue*>> ready_;
  size_t ready_messages_ = 0;
  std::deque<std::pair<TimePoint, KeyQueue*>> ready_suspects_;  // likewise, kReadySuspect
  std::set<std::pair<TimePoint, std::string>> suspended_;       // by retry_at
  size_t held_messages_ = 0;
  size_t held_bytes_ = 0;
  // Nodes of lists that are used again. An applier would free each of them, and the thread that
  // reads the stream allocate it, which the heap makes costly. At most kMostSpare.
  std::list<Delivery> spare_;
  static constexpr size_t kMostSpare = 4000;
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_KEY_QUEUES_H_
