// Applies a batch and decides what becomes of each event of it.
//
//   - All events are applied in one transaction. If it fails with a permanent error, the event that
//     the error names is tried alone, and what is before and after it apart. If the error names
//     none, the halves of the batch are tried, and so on until the event at fault stands alone. The
//     other events are applied.
//   - A deadlock, a lock that is not available, a lack of memory or a statement that takes too long
//     can be the fault of one event, of the size of the transaction, or of neither. The event that
//     the error names is set aside, to be applied alone later, and the rest is tried in smaller
//     transactions. Transactions stay smaller until several in a row have fitted and have taken
//     less than a quarter of statement_timeout. A connection that breaks makes them smaller, too,
//     because an event may have brought down its backend.
//   - An event that fails alone is nacked with backoff until it has had max_attempts. The attempts
//     are counted here: the service's own count is approximate and includes nacks that were not the
//     event's fault. Then the policy of the subscription decides. `reject` records the event in
//     postbox.dead_letter. `dead_letter_topic` publishes it to that topic with the error as
//     attributes. `nack` keeps nacking it without a limit. A poisoned event (received_event.h) is
//     never applied; the policy decides at its first attempt.
//   - An event that waits for a lock, or for memory, or that exceeds statement_timeout alone, is
//     given up later: when it has failed for policy.patience, while other events of the
//     subscription were applied. Until then an operator may have locked a row or a table, or the
//     disk may be slow. One that takes too long is given up at last, after a day, even if nothing
//     else came.
//   - An error that is not an event's nacks the events of its transaction, with a backoff that
//     grows until some transaction succeeds. An error of an event is treated so while the inbox
//     itself is at fault: the inbox is dropped, or a right, a handler or a column is missing. A
//     call without events finds that out.
//   - Nothing of a key is applied behind an event of the key that is not settled.
//   - When the puller stops, the statement that runs is cancelled and no other one begins.
//
// The database is behind an interface. No threads; the time is passed in.
#ifndef POSTBOX_WORKER_PULLER_BATCH_APPLIER_H_
#define POSTBOX_WORKER_PULLER_BATCH_APPLIER_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "proto/rules/backoff.h"
#include "worker/puller/inbox_client.h"
#include "worker/puller/key_queues.h"
#include "worker/puller/log.h"
#include "worker/puller/pull_status.h"

namespace postbox::puller {

enum class OnError { kReject, kDeadLetterTopic, kNack };

struct ApplyPolicy {
  std::string subscription;  // name, for the log
  OnError on_error = OnError::kReject;
  int max_attempts = 5;
  size_t batch_size = 500;
  std::chrono::milliseconds statement_timeout{0};  // 0: none
  std::chrono::milliseconds patience = std::chrono::minutes(10);
  const std::atomic<bool>* stopping = nullptr;  // null: it never stops
  pubsub::BackoffPolicy backoff{std::chrono::seconds(1), 2.0, std::chrono::seconds(60)};
};

// How often each message failed alone, through its own fault, or through one that may be others'.
// The appliers of a subscription share it. It holds at most `max_messages` messages: the one that
// was counted first is dropped first.
class AttemptCounter {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Attempts {
    int count = 0;
    TimePoint first{};
    bool others_applied = false;  // events of the subscription were applied since the first one
  };

  explicit AttemptCounter(size_t max_messages = 100000) : max_messages_(max_messages) {}

  // Counts an attempt that failed through the message's `own` fault, or through one that may be
  // others', and returns the attempts of this kind.
  Attempts Increment(std::string_view message_id, bool own, TimePoint now);
  void Forget(std::string_view message_id);
  bool Known(std::string_view message_id);
  // Some events were applied.
  void NoteApplied() { ++applied_; }

 private:
  struct Count {
    int count = 0;
    TimePoint first;
    uint64_t applied_before = 0;
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

// What is to become of a delivery after its batch was applied.
struct Disposition {
  enum Kind {
    kSettled,     // acked
    kFailed,      // nacked after `delay`
    kAlone,       // to be applied again, in a batch of its own; with a `failure`: to be recorded
    kDeadLetter,  // published to the dead-letter topic with `failure`, then acked
    kBehind,      // shares the fate of the first event of its key that is not settled
  };
  Kind kind = kBehind;
  std::string outcome{};  // of kSettled: what the inbox returned
  std::chrono::milliseconds delay{0};
  EventFailure failure{};
};

class BatchApplier {
 public:
  using TimePoint = AttemptCounter::TimePoint;
  static constexpr int kLongPatience = 144;  // times policy.patience: a day
  // When so many events in a row have failed alone, and not through their own fault, the rest of
  // the batch is given back without being tried: a table may be locked, and each trial takes its
  // time.
  static constexpr int kMaxLone = 3;

  BatchApplier(ApplyPolicy policy, InboxClient* inbox, AttemptCounter* attempts, PullStatus* status)
      : policy_(std::move(policy)),
        inbox_(inbox),
        attempts_(attempts),
        status_(status),
        limit_(policy_.batch_size),
        transient_backoff_(policy_.backoff) {}

  // Returns one disposition for each delivery. The deliveries of a key are in order in `batch`.
  std::vector<Disposition> Apply(const std::vector<Delivery>& batch, TimePoint now);

  // How many events a transaction may have now.
  size_t limit() const { return limit_; }

 private:
  // Whose fault an error may be.
  enum class Fault {
    kEvents,        // that of one of the events
    kSlow,          // statement_timeout: of one of them, or of their number
    kContention,    // of one of them, of their number, or of others
    kSurroundings,  // none of them
    kConnection,    // the connection broke
  };

  Fault FaultOf(const InboxResult& result) const;
  void ApplyRange(size_t begin, size_t end);
  // Applies at most limit_ events.
  void ApplyChunk(const std::vector<size_t>& positions);
  void Split(const std::vector<size_t>& positions, const InboxResult& result, Fault fault);
  void GiveUpOrRetry(size_t i, const InboxResult& result, Fault fault, bool poison);
  void GiveUp(size_t i, EventFailure failure, Fields fields);
  void Record(size_t i, const EventFailure& failure, Fields fields);
  void Settle(size_t i, std::string outcome);
  void Decide(size_t i, Disposition disposition);
  void Fail(size_t i, std::chrono::milliseconds delay);
  void FailTogether(const std::vector<size_t>& positions, const InboxResult& result);
  void Grow(size_t events, std::chrono::milliseconds took);
  bool Stopping() const { return policy_.stopping != nullptr && *policy_.stopping; }
  // True if an earlier delivery of the same key failed, so that this one must not be applied.
  bool Behind(size_t i) const;

  const ApplyPolicy policy_;
  InboxClient* const inbox_;
  AttemptCounter* const attempts_;
  PullStatus* const status_;
  size_t limit_;
  int fitted_ = 0;  // transactions of limit_ events that have succeeded since the last change
  pubsub::Backoff transient_backoff_;

  // Of the batch that is being applied.
  const std::vector<Delivery>* batch_ = nullptr;
  TimePoint now_;
  std::vector<Disposition> dispositions_;
  std::vector<bool> decided_;
  std::unordered_map<std::string, size_t> first_failures_;  // by queue key: position in the batch
  bool broken_ = false;                                     // the connection is gone
  int lone_failures_ = 0;      // events that failed alone since the last success (kMaxLone)
  std::string lone_sqlstate_;  // of the last of them
  std::optional<std::chrono::milliseconds> delay_;  // of FailTogether, once it has been called
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_BATCH_APPLIER_H_
