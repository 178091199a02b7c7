// Applies a batch and decides what becomes of each event of it.
//
//   - All events are applied in one transaction. If it fails with a permanent error, the halves of
//     the batch are tried, and so on until the event at fault stands alone. One such event among n
//     costs about 2 log2(n) transactions; the other events are applied. A deadlock or a
//     serialization failure halves the batch, too.
//   - An event that fails alone with a permanent error is nacked with backoff until it has had
//     max_attempts. The attempts are counted here: the service's own count is approximate and
//     includes nacks that were not the event's fault. Then the policy of the subscription decides.
//     `reject` records the event in postbox.dead_letter. `dead_letter_topic` publishes it to that
//     topic with the error as attributes. `nack` keeps nacking it without a limit. A poisoned event
//     (received_event.h) is never applied; the policy decides at its first attempt.
//   - A transient error nacks the events of its transaction, with a backoff that grows until some
//     transaction succeeds. An error of an event is treated as transient while the inbox itself is
//     at fault: the inbox is dropped, or a right, a handler or a column is missing. A call without
//     events finds that out.
//   - Nothing of a key is applied behind an event of the key that is not settled.
//
// The database and the dead-letter topic are behind interfaces. No threads and no clock.
#ifndef POSTBOX_WORKER_PULLER_BATCH_APPLIER_H_
#define POSTBOX_WORKER_PULLER_BATCH_APPLIER_H_

#include <chrono>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "proto/rules/backoff.h"
#include "worker/puller/inbox_client.h"
#include "worker/puller/key_queues.h"

namespace postbox::puller {

enum class OnError { kReject, kDeadLetterTopic, kNack };

struct ApplyPolicy {
  std::string subscription;  // name, for the log
  OnError on_error = OnError::kReject;
  int max_attempts = 5;
  pubsub::BackoffPolicy backoff{std::chrono::seconds(1), 2.0, std::chrono::seconds(60)};
};

// How often each message failed through its own fault. The appliers of a subscription share it.
// It holds at most `max_messages` messages: the one that was counted first is dropped first.
class AttemptCounter {
 public:
  explicit AttemptCounter(size_t max_messages = 100000) : max_messages_(max_messages) {}

  int Increment(const std::string& message_id);
  void Forget(const std::string& message_id);

 private:
  const size_t max_messages_;
  std::mutex mutex_;
  std::unordered_map<std::string, int> attempts_;
  std::deque<std::string> order_;
};

// Publishes an event to the dead-letter topic. If that fails, returns false and puts the reason
// into `error`.
using DeadLetterPublisher = std::function<bool(const Delivery&, const std::string& sqlstate,
                                               const std::string& message, std::string* error)>;

// What is to become of a delivery after its batch was applied.
struct Disposition {
  enum Kind {
    kSettled,  // acked
    kFailed,   // nacked after `delay`
    kBehind,   // nacked with the earlier event of its key that failed
  };
  Kind kind = kBehind;
  std::string outcome;  // of kSettled: what the inbox returned, or "dead_letter_topic"
  std::chrono::milliseconds delay{0};
};

class BatchApplier {
 public:
  BatchApplier(ApplyPolicy policy, InboxClient* inbox, DeadLetterPublisher publish,
               AttemptCounter* attempts)
      : policy_(std::move(policy)),
        inbox_(inbox),
        publish_(std::move(publish)),
        attempts_(attempts),
        transient_backoff_(policy_.backoff) {}

  // Returns one disposition for each delivery. The deliveries of a key are in order in `batch`.
  std::vector<Disposition> Apply(const std::vector<Delivery>& batch);

 private:
  void ApplyRange(size_t begin, size_t end);
  void GiveUpOrRetry(size_t i, std::string sqlstate, std::string error, bool poison);
  void Settle(size_t i, std::string outcome);
  void Fail(size_t i, std::chrono::milliseconds delay);
  void FailTransient(const std::vector<size_t>& positions, const std::string& sqlstate,
                     const std::string& error);
  // True if an earlier delivery of the same key failed, so that this one must not be applied.
  bool Behind(size_t i) const;

  const ApplyPolicy policy_;
  InboxClient* const inbox_;
  const DeadLetterPublisher publish_;
  AttemptCounter* const attempts_;
  pubsub::Backoff transient_backoff_;

  // Of the batch that is being applied.
  const std::vector<Delivery>* batch_ = nullptr;
  std::vector<Disposition> dispositions_;
  std::vector<bool> decided_;
  std::unordered_map<std::string, size_t> first_failures_;  // by queue key: position in the batch
  bool broken_ = false;                                     // the connection is gone
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_BATCH_APPLIER_H_
