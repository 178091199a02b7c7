// How often each message failed alone, through its own fault, or through one that may be others'.
// The appliers of a subscription share it. It holds at most `max_messages` messages: the one that
// was counted first is dropped first.
#ifndef POSTBOX_WORKER_PULLER_ATTEMPT_COUNTER_H_
#define POSTBOX_WORKER_PULLER_ATTEMPT_COUNTER_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "worker/puller/consumer_health.h"

namespace postbox::puller {

class AttemptCounter {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Attempts {
    int count = 0;
    TimePoint first{};
    bool others_applied = false;  // events of the subscription were applied since the first one
    ConsumerHealth::Mark previous = 0;  // of the attempt before; 0: this is the first one
  };

  explicit AttemptCounter(size_t max_messages = 100000) : max_messages_(max_messages) {}

  // Counts an attempt that failed through the message's `own` fault, or through one that may be
  // others', and returns the attempts of this kind. Those with a mark before `counts_from` are
  // forgotten (consumer_health.h).
  Attempts Increment(std::string_view message_id, bool own, TimePoint now,
                     ConsumerHealth::Mark mark = 0, ConsumerHealth::Mark counts_from = 0);
  void Forget(std::string_view message_id);
  bool Known(std::string_view message_id);
  // Some events were applied.
  void NoteApplied() { ++applied_; }

 private:
  struct Count {
    int count = 0;
    TimePoint first;
    uint64_t applied_before = 0;
    ConsumerHealth::Mark mark = 0;  // of the last one
  };
  struct Entry {
    std::array<Count, 2> counts;  // own or not
    std::list<std::string>::iterator place;
  };

  const size_t max_messages_;
  std::atomic<uint64_t> applied_ = 0;
  std::atomic<size_t> known_ = 0;  // the size of attempts_
  std::mutex mutex_;
  std::unordered_map<std::string, Entry> attempts_;
  std::list<std::string> order_;  // those of attempts_, the first one first
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_ATTEMPT_COUNTER_H_
