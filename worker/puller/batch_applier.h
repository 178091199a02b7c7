// Applies a batch and decides what becomes of each event of it.
//
//   - All events are applied in one transaction. If it fails with a permanent error, the event that
//     the error names is tried alone, and what is before and after it apart. If the error names
//     none, the halves of the batch are tried, and so on until the event at fault stands alone. The
//     other events are applied.
//   - A deadlock, a lock that is not available, a lack of memory or a statement that takes too long
//     can be the fault of one event, of the size of the transaction, or of neither. The event that
//     the error names is set aside, to be applied alone later, and the rest is tried in smaller
//     transactions (transaction_size.h). A connection that breaks makes them smaller, too,
//     because an event may have brought down its backend.
//   - An event that fails alone is nacked with backoff until it has had max_attempts. The attempts
//     are counted here: the service's own count is approximate and includes nacks that were not the
//     event's fault. Then the policy of the subscription decides. `reject` records the event in
//     postbox.dead_letter. `park_key` records it there, too, and the inbox records what follows of
//     its key behind it, without applying it (parked_retry.h). `dead_letter_topic` publishes it to
//     that topic with the error as attributes. `nack` keeps nacking it without a limit. A poisoned
//     event (received_event.h) is never applied; the policy decides at its first attempt.
//   - An event that waits for a lock, or for memory, or that exceeds statement_timeout alone, is
//     given up later: when it has failed for policy.patience, while other events of the
//     subscription were applied. Until then an operator may have locked a row or a table, or the
//     disk may be slow. One that takes too long is given up at last, after a day, even if nothing
//     else came.
//   - What becomes of an event that has used up its attempts depends on the other events of its
//     type (consumer_health.h). If the consumer of the type is broken, it is suspended: its events
//     are held, and none is given up.
//   - An error that is not an event's nacks the events of its transaction, with a backoff that
//     grows until some transaction succeeds. An error of an event is treated so while the inbox
//     itself is at fault: the inbox is dropped, or a right, a handler or a column is missing. A
//     call without events finds that out.
//   - While a projection or handler is paused, the type of the event that the error names is
//     suspended (consumer_health.h). The others of the transaction are applied. It is no failure of
//     the subscription.
//   - Nothing of a key is applied behind an event of the key that is not settled
//     (batch_dispositions.h).
//   - When the puller stops, the statement that runs is cancelled and no other one begins.
//
// The database is behind an interface. No threads; the time is passed in.
#ifndef POSTBOX_WORKER_PULLER_BATCH_APPLIER_H_
#define POSTBOX_WORKER_PULLER_BATCH_APPLIER_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "extension/rules/backoff.h"
#include "worker/puller/attempt_counter.h"
#include "worker/puller/batch_dispositions.h"
#include "worker/puller/consumer_health.h"
#include "worker/puller/inbox_client.h"
#include "worker/puller/log.h"
#include "worker/puller/pull_status.h"
#include "worker/puller/transaction_size.h"

namespace postbox::puller {

enum class OnError { kReject, kDeadLetterTopic, kNack, kParkKey };

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

class BatchApplier {
 public:
  using TimePoint = AttemptCounter::TimePoint;
  static constexpr int kLongPatience = 144;  // times policy.patience: a day
  // When so many events in a row have failed alone, and not through their own fault, the rest of
  // the batch is given back without being tried: a table may be locked, and each trial takes its
  // time.
  static constexpr int kMaxLone = 3;

  BatchApplier(ApplyPolicy policy, InboxClient* inbox, AttemptCounter* attempts,
               ConsumerHealth* health, PullStatus* status)
      : policy_(std::move(policy)),
        inbox_(inbox),
        attempts_(attempts),
        health_(health),
        status_(status),
        size_(policy_.batch_size, policy_.statement_timeout),
        transient_backoff_(policy_.backoff) {}

  // Returns one disposition for each delivery. The deliveries of a key are in order in `batch`.
  std::vector<Disposition> Apply(const std::vector<Delivery>& batch, TimePoint now);

  // How many events a transaction may have now.
  size_t limit() const { return size_.limit(); }

 private:
  // Whose fault an error may be.
  enum class Fault {
    kEvents,        // that of one of the events
    kSlow,          // statement_timeout: of one of them, or of their number
    kContention,    // of one of them, of their number, or of others
    kPause,         // none of them: what takes one of them is paused
    kSurroundings,  // none of them
    kConnection,    // the connection broke
  };

  Fault FaultOf(const InboxResult& result) const;
  void ApplyRange(size_t begin, size_t end);
  // Applies at most limit() events.
  void ApplyChunk(const std::vector<size_t>& positions);
  void Split(const std::vector<size_t>& positions, const InboxResult& result, Fault fault);
  // What takes one of these events is paused.
  void WaitForResume(const std::vector<size_t>& positions, const InboxResult& result);
  void FailAlone(size_t i, const InboxResult& result, Fault fault, bool poison);
  void GiveUpOrRetry(size_t i, const InboxResult& result, Fault fault, bool poison,
                     const ConsumerHealth::Verdict& verdict);
  bool IsToBeGivenUp(Fault fault, const AttemptCounter::Attempts& attempts,
                     const ConsumerHealth::Verdict& verdict) const;
  // The event failed alone, through an error that looks like its own, or what takes it is paused.
  // If its type is suspended, it is held, and what is still to be tried of the type, too.
  ConsumerHealth::Verdict Judge(size_t i, const InboxResult& result, bool paused);
  // A transaction of these events, which began with this mark, was committed.
  void NoteSettled(const std::vector<size_t>& positions, const std::vector<std::string>& outcomes,
                   ConsumerHealth::Mark begun);
  void Record(size_t i, const EventFailure& failure, Fields fields);
  void Settle(size_t i, std::string outcome, std::string sqlstate = {});
  void FailTogether(const std::vector<size_t>& positions, const InboxResult& result);
  bool Stopping() const { return policy_.stopping != nullptr && *policy_.stopping; }

  const ApplyPolicy policy_;
  InboxClient* const inbox_;
  AttemptCounter* const attempts_;
  ConsumerHealth* const health_;
  PullStatus* const status_;
  TransactionSize size_;
  pubsub::Backoff transient_backoff_;

  // Of the batch that is being applied.
  TimePoint now_;
  BatchDispositions dispositions_;
  bool broken_ = false;        // the connection is gone
  int lone_failures_ = 0;      // events that failed alone since the last success (kMaxLone)
  std::string lone_sqlstate_;  // of the last of them
  std::optional<std::chrono::milliseconds> delay_;  // of FailTogether, once it has been called
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_BATCH_APPLIER_H_
