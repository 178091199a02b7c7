// Applies a batch and decides what becomes of each event of it.
//
//   - All events in one transaction. If that fails for good, halves of the batch are tried until
//     the event at fault stands alone: one poison event costs 2 log2(n) transactions, and costs the
//     others nothing. A deadlock or serialization failure halves the batch too.
//   - An event that fails alone with a permanent error is nacked with backoff until it has had
//     max_attempts (counted here; the service's own count is approximate and includes nacks that
//     were not the event's fault). Then the policy of its subscription decides: `reject` records it
//     in postbox.dead_letter, `dead_letter_topic` publishes it there with the error as attributes,
//     `nack` goes on for ever. Poison (event.h) is never applied; the policy decides at once.
//   - A transient error nacks what it hit, with a backoff that grows until something succeeds. So
//     does any error of an event while the inbox itself is at fault, as a call without events
//     tells: it is gone, or a right, a handler or a column is missing.
//   - Behind an event that is not settled nothing of its key is applied.
// Everything about the database and the topic is behind interfaces; no threads, no clock.
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
#include "worker/puller/inbox.h"
#include "worker/puller/key_queue.h"

namespace postbox::puller {

enum class OnError { kReject, kDeadLetterTopic, kNack };

struct ApplyPolicy {
  std::string subscription;  // name, for the log
  OnError on_error = OnError::kReject;
  int max_attempts = 5;
  pubsub::BackoffPolicy backoff{std::chrono::seconds(1), 2.0, std::chrono::seconds(60)};
};

// How often each message failed for its own fault; shared by the appliers of a subscription.
// Bounded: the message that was counted first is forgotten first.
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

// Publishes an event to the dead-letter topic; false and the reason in `error` if it was not taken.
using DeadLetterPublisher = std::function<bool(const Delivery&, const std::string& sqlstate,
                                               const std::string& message, std::string* error)>;

struct Verdict {
  enum Kind {
    kSettled,  // ack
    kFailed,   // nack after `delay`
    kBehind,   // an earlier event of its key failed: nacked with it
  };
  Kind kind = kBehind;
  std::string outcome;  // kSettled: the inbox's, or "dead_letter_topic"
  std::chrono::milliseconds delay{0};
};

class BatchApplier {
 public:
  BatchApplier(ApplyPolicy policy, Inbox* inbox, DeadLetterPublisher publish,
               AttemptCounter* attempts)
      : policy_(std::move(policy)),
        inbox_(inbox),
        publish_(std::move(publish)),
        attempts_(attempts),
        transient_backoff_(policy_.backoff) {}

  // One verdict per delivery. Those of one lane stand in their order in `batch`.
  std::vector<Verdict> Apply(const std::vector<Delivery>& batch);

 private:
  void ApplyRange(size_t begin, size_t end);
  void GiveUpOrRetry(size_t i, std::string sqlstate, std::string error, bool poison);
  void Settle(size_t i, std::string outcome);
  void Fail(size_t i, std::chrono::milliseconds delay);
  void FailTransient(const std::vector<size_t>& positions, const std::string& sqlstate,
                     const std::string& error);
  // May this one be applied, or does an earlier one of its lane stand in the way?
  bool Behind(size_t i) const;

  const ApplyPolicy policy_;
  Inbox* const inbox_;
  const DeadLetterPublisher publish_;
  AttemptCounter* const attempts_;
  pubsub::Backoff transient_backoff_;

  // Of the batch that is being applied.
  const std::vector<Delivery>* batch_ = nullptr;
  std::vector<Verdict> verdicts_;
  std::vector<bool> decided_;
  std::unordered_map<std::string, size_t> failed_lanes_;  // position of the first failure
  bool broken_ = false;                                   // the connection is gone
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_BATCH_APPLIER_H_
