// The messages that the puller holds: which of them make a batch and when, and what becomes of
// those that a batch has not settled.
//
//   - A batch is due when it would be full, or by the timer (batch_timer.h).
//   - An event that has failed is tried again in a separate batch. All appliers but one, if there
//     are several, may have such batches, so that one of them is always there for what is healthy.
//   - A failure suspends its key until its delay is over (key_queues.h).
//   - An event that goes to the dead-letter topic keeps its key busy until the topic has taken it.
//     One that the topic refuses for good, because of its size for example, is recorded in
//     postbox.dead_letter: it comes back alone, given up.
//   - The events of a suspended type (consumer_health.h) stay here, with what follows in their
//     queues. They are not given back: each redelivery would count for the dead-letter policy of
//     the Pub/Sub subscription, and cost as much as a delivery. When it is time for a probe, the
//     first event of a queue is tried: of one that no probe has tried, or of the one that was tried
//     longest ago, so that a key that is at fault itself does not keep its type suspended. Events
//     that had failed before, and wait for their delay, are held from the beginning, too.
//   - What is held takes at most half of what may be outstanding, so that other types still come.
//     Queues beyond that are given back after kGiveBack, those of types with one queue last.
//
// Not thread-safe; the time is passed in.
#ifndef POSTBOX_WORKER_PULLER_HELD_DELIVERIES_H_
#define POSTBOX_WORKER_PULLER_HELD_DELIVERIES_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "extension/rules/backoff.h"
#include "worker/puller/batch_dispositions.h"
#include "worker/puller/batch_timer.h"
#include "worker/puller/config.h"
#include "worker/puller/consumer_health.h"
#include "worker/puller/dead_letter_topic.h"
#include "worker/puller/key_queues.h"

namespace postbox::puller {

class HeldDeliveries {
 public:
  using TimePoint = KeyQueues::TimePoint;
  using Letter = DeadLetterTopic::Letter;

  static constexpr std::chrono::seconds kGiveBack{5};

  // `health` outlives it.
  HeldDeliveries(const SubscriptionConfig& config, ConsumerHealth* health);

  // Moves the deliveries out. True if an applier that waits has to look again: otherwise it knows
  // the time already.
  bool Push(std::vector<Delivery>* deliveries, TimePoint now);
  // Nothing could be taken, whatever the time.
  bool NoneReady() const { return queues_.ready() == 0 && !queues_.suspect_since(); }

  // The time since which, or from which on, there is a batch to be applied.
  TimePoint NextBatch() const;
  // At most `limit` messages. What was taken comes back with Return.
  std::vector<Delivery> Take(size_t limit, TimePoint now);
  // What became of the messages of a batch. Moves the unsettled ones out of it. Returns those that
  // are to be sent to the dead-letter topic; LetterDone takes the result of each.
  std::vector<Letter> Return(const std::vector<Disposition>& dispositions,
                             std::vector<Delivery>* batch, TimePoint now);

  int letters() const { return letters_; }
  // Returns the delay after which a letter that was not taken is tried again.
  std::optional<std::chrono::milliseconds> LetterDone(Letter letter, TimePoint now);

  // Lets probes go, and what is held of types that are not suspended any more.
  void Resume(TimePoint now);
  // When there may be something for Resume or BeginGiveBack.
  TimePoint NextLook() const;

  // When suspended keys are to be given back; never while they are on their way.
  TimePoint NextGiveBack() const;
  // True if it is time: then TakeSuspended is to be called on the thread that hands messages on.
  bool BeginGiveBack(TimePoint now);
  // The messages of the keys whose time has come, to be nacked in this order.
  std::vector<uint64_t> TakeSuspended(TimePoint now);
  // How many messages are here, or are being applied, and when the oldest of them was published.
  size_t in_hand() const { return in_hand_; }
  std::optional<std::chrono::system_clock::time_point> oldest() const;
  auto Waiting() const { return queues_.Waiting(); }
  // All that waits, to be nacked.
  std::vector<uint64_t> Drain();

 private:
  // Null if there is none, or if too many appliers have one.
  std::optional<TimePoint> NextSuspect() const;
  // `unsettled` are the messages of one queue; `first` is the disposition of the first of them.
  void ReturnToQueue(const std::string& queue_key, std::vector<Delivery> unsettled,
                     const Disposition& first, TimePoint now, std::vector<Letter>* letters);

  void Hold(const std::string& queue_key, std::vector<Delivery> unsettled, TimePoint now);
  // Returns true if queues are to be given back because of it.
  bool LimitHeld(TimePoint now);

  ConsumerHealth* const health_;
  const size_t batch_size_;
  const int most_suspects_;
  const size_t most_held_messages_;
  const size_t most_held_bytes_;
  KeyQueues queues_;
  BatchTimer batch_timer_;
  int suspects_ = 0;          // that are being applied
  int letters_ = 0;           // on their way to the dead-letter topic
  bool giving_back_ = false;  // since BeginGiveBack
  pubsub::Backoff letter_backoff_;
  size_t in_hand_ = 0;
  // Of each batch that is being applied, and of each letter: when the oldest was published.
  std::multiset<std::chrono::system_clock::time_point> taken_;
  // The queues of a suspended type; in both the next probe comes first.
  struct HeldType {
    std::deque<std::string> untried, tried;

    size_t size() const { return untried.size() + tried.size(); }
    std::deque<std::string>& first() { return untried.empty() ? tried : untried; }
  };
  std::map<std::string, HeldType> held_;
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_HELD_DELIVERIES_H_
