// The rules of a subscription: which message may be delivered to which client, when a delivery
// ends, and what follows then. A state machine without threads, clock and gRPC. The caller (the
// broker) makes its calls one after the other and passes the time.
//
// message_queues.h has the states of a message. Invariants:
// - An ack id of an older lease has no effect.
// - Ordering (enable_message_ordering, message with a key): ordered_key.h has the promises.
// - Exactly-once delivery: an ack counts only while its lease is the current one and, with
//   ordering, only if all earlier messages of the key are acked. So an acked message is never
//   delivered again.
// - delivery_attempt is 1 + the number of the message's own nacks and expiries. It does not count
//   that the message was taken back with an earlier one of its key.
// - A message that the filter does not match counts as acked from the beginning. It is not stored.
#ifndef POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_SUBSCRIPTION_H_
#define POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_SUBSCRIPTION_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/pubsub/v1/pubsub.pb.h"
#include "worker/emulator/rules/filter.h"
#include "worker/emulator/subscription/ack_id.h"
#include "worker/emulator/subscription/dead_letter_queue.h"
#include "worker/emulator/subscription/message_queues.h"
#include "worker/emulator/subscription/stored_message.h"

namespace postbox::emulator {

struct LeasedMessage {
  StoredMessagePtr message;
  AckId ack_id;
  int delivery_attempt = 0;  // 0 without a dead-letter policy
};

// The results of the ack ids of one request.
struct AckOutcome {
  std::vector<AckId> done;
  std::vector<std::string> stale;      // exactly-once: not the current lease
  std::vector<std::string> unordered;  // exactly-once and ordered: an earlier message is not acked
};

struct SubscriptionCounters {
  int64_t backlog = 0;  // messages that wait or are suspended now
  int64_t leased = 0;   // now
  int64_t delivered = 0;
  int64_t redelivered = 0;
  int64_t acked = 0;
  int64_t nacked = 0;
  int64_t expired = 0;
  int64_t dead_lettered = 0;
};

class Subscription {
 public:
  // `incarnation` distinguishes the ack ids of this subscription from those of an earlier one of
  // the same name. `config` must be checked, and its defaults must be set.
  Subscription(google::pubsub::v1::Subscription config, uint64_t incarnation, bool deliver_twice,
               DeadLetterQueue::TopicExists topic_exists);
  Subscription(const Subscription&) = delete;
  Subscription& operator=(const Subscription&) = delete;

  const google::pubsub::v1::Subscription& config() const { return config_; }
  // Name, ordering and filter must not change.
  void Configure(google::pubsub::v1::Subscription config);
  // Drops all messages.
  void Detach();

  // Adds a message that the topic took after this subscription was created, if the filter matches
  // it. Sequences must ascend.
  void Add(StoredMessagePtr message);

  StreamId OpenStream(FlowControl flow_control, absl::Duration ack_deadline);
  void SetStreamDeadline(StreamId id, absl::Duration ack_deadline);
  // The messages of the stream stay leased until their deadlines, or are given back at once.
  void CloseStream(StreamId id, bool give_back) { queues_.CloseStream(id, give_back); }
  // Leases the messages that the stream may have now, in order, within the limits of one response.
  std::vector<LeasedMessage> Take(StreamId id, absl::Time now);
  // True if Take(id) would find something.
  bool HasWork(StreamId id) const { return queues_.HasWork(id); }

  // Leases messages for a unary Pull. At most one batch of a key is outstanding.
  std::vector<LeasedMessage> Pull(int max_messages, absl::Time now);
  bool HasPullWork() const { return queues_.HasPullWork(); }

  // Undoes deliveries that were not sent.
  void GiveBack(const std::vector<LeasedMessage>& deliveries);

  AckOutcome Acknowledge(const std::vector<absl::string_view>& ack_ids);
  // seconds == 0 is a nack.
  AckOutcome ModifyAckDeadline(const std::vector<std::pair<absl::string_view, int>>& changes,
                               absl::Time now);

  // Ends the leases and suspensions that are over, and drops messages older than the retention.
  void Tick(absl::Time now);
  // The time at which Tick must be called next; InfiniteFuture if it need not be.
  absl::Time next_tick() const;

  // Messages published before `time` become acked. All others that are still stored, here or among
  // those that the topic has retained, become unacked.
  void Seek(absl::Time time, const std::deque<StoredMessagePtr>& retained = {});
  // The messages in `unacked` (by sequence) become unacked, all others acked.
  void Seek(const std::vector<StoredMessagePtr>& unacked);

  // The messages, and which of them are to be saved (journal.h).
  Entries& entries() { return queues_.entries(); }
  // Adds a message as it was before a restart, in the order of their sequences.
  void Recover(StoredMessagePtr message, EntryState state);

  // Removes and returns the messages that have used up their attempts since the last call.
  std::vector<DeadLetter> TakeDeadLetters() { return dead_letters_.Collect(); }

  SubscriptionCounters counters() const;

 private:
  std::vector<LeasedMessage> Deliver(DeliveryBudget budget, const Recipient& recipient);
  // The entry of which `id` is the current delivery; null if there is none.
  Entry* Current(const AckId& id) const;
  // The lease has ended with a nack or at its deadline.
  void Fail(Entry* entry, absl::Time now);

  google::pubsub::v1::Subscription config_;
  const std::optional<Filter> filter_;
  const uint64_t incarnation_;
  MessageQueues queues_;
  DeadLetterQueue dead_letters_;
  SubscriptionCounters counters_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_SUBSCRIPTION_H_
