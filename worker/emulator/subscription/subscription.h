// The state of a subscription and its rules: which message may be delivered to which client, when a
// delivery ends, and what follows then. A state machine without threads, clock and gRPC. The caller
// (Broker) makes its calls one after the other and passes the time.
//
// A message is in one of these states:
//
//   waiting --Take/Pull--> leased --Acknowledge--> acked (gone, or kept for a seek)
//      ^                      |
//      |                      +-- nack (deadline 0) or expired deadline
//      |                      v
//      +---- at retry_at -- suspended (only with a retry policy)
//
// Invariants:
// - Every delivery is a new lease with a new ack id. An ack id of an older lease has no effect.
// - Ordering (enable_message_ordering, message with a key): the messages of a key are in one queue
//   with a cursor. Those before the cursor are leased or acked; those behind it wait. All leased
//   messages of a key belong to one stream or to one Pull.
// - Redelivery of an ordered message moves the cursor back to it. All later messages of the key,
//   even acked ones, are taken back and delivered again after it, in order. Their old ack ids have
//   no effect.
// - Exactly-once delivery: an ack counts only while its lease is the current one and, with
//   ordering, only if all earlier messages of the key are acked. So an acked message is never
//   delivered again.
// - delivery_attempt is 1 + the number of the message's own nacks and expiries. It does not count
//   that the message was taken back with an earlier one of its key.
// - A message that the filter does not match counts as acked from the beginning. It is not stored.
// - With `deliver_twice` the ack of the first delivery means that the message is delivered once
//   more. The ordered messages of a key are delivered again together, when none of the key is
//   leased.
#ifndef POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_SUBSCRIPTION_H_
#define POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_SUBSCRIPTION_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/pubsub/v1/pubsub.pb.h"
#include "worker/emulator/rules/filter.h"
#include "worker/emulator/subscription/ack_id.h"
#include "worker/emulator/subscription/stored_message.h"

namespace postbox::emulator {

// The most that a stream holds unacknowledged. 0 and below mean no limit.
struct FlowControl {
  int64_t max_messages = 0;
  int64_t max_bytes = 0;
};

struct LeasedMessage {
  StoredMessagePtr message;
  AckId ack_id;
  int delivery_attempt = 0;  // 0 without a dead-letter policy
};

// A message that has used up its delivery attempts and is to be published to `topic`.
struct DeadLetter {
  std::string topic;
  google::pubsub::v1::PubsubMessage message;
};

// The results of the ack ids of one request.
struct AckOutcome {
  std::vector<AckId> done;
  std::vector<std::string> stale;      // exactly-once: not the current lease
  std::vector<std::string> unordered;  // exactly-once and ordered: an earlier message is not acked
};

struct SubscriptionCounters {
  int64_t delivered = 0;
  int64_t redelivered = 0;
  int64_t acked = 0;
  int64_t nacked = 0;
  int64_t expired = 0;
  int64_t dead_lettered = 0;
};

// The state of a message, as far as it outlives a restart.
struct EntryState {
  bool acked = false;
  int failures = 0;
};

class Subscription {
 public:
  using StreamId = uint64_t;
  using TopicExists = std::function<bool(const std::string& topic)>;

  // `incarnation` distinguishes the ack ids of this subscription from those of an earlier one of
  // the same name. `config` must be checked, and its defaults must be set.
  Subscription(google::pubsub::v1::Subscription config, uint64_t incarnation, bool deliver_twice,
               TopicExists topic_exists);
  Subscription(const Subscription&) = delete;
  Subscription& operator=(const Subscription&) = delete;

  const google::pubsub::v1::Subscription& config() const { return config_; }
  // Name, topic, ordering and filter must not change.
  void Configure(google::pubsub::v1::Subscription config) { config_ = std::move(config); }
  void TopicDeleted() {
    config_.set_topic("_deleted-topic_");
    config_.clear_topic_message_retention_duration();
  }
  // Null: the topic retains nothing.
  void SetTopicRetention(const google::protobuf::Duration* duration) {
    config_.clear_topic_message_retention_duration();
    if (duration != nullptr) *config_.mutable_topic_message_retention_duration() = *duration;
  }
  // Drops all messages.
  void Detach();

  // Adds a message that the topic took after this subscription was created, if the filter matches
  // it. Sequences must ascend.
  void Add(StoredMessagePtr message);

  StreamId OpenStream(FlowControl flow_control, absl::Duration ack_deadline);
  void SetStreamDeadline(StreamId id, absl::Duration ack_deadline);
  // The messages of the stream stay leased until their deadlines, or are given back at once.
  void CloseStream(StreamId id, bool give_back);
  // Leases the messages that the stream may have now, in order, within the limits of one response.
  std::vector<LeasedMessage> Take(StreamId id, absl::Time now);
  // True if Take(id) would find something.
  bool HasWork(StreamId id) const;

  // Leases messages for a unary Pull. At most one batch of a key is outstanding.
  std::vector<LeasedMessage> Pull(int max_messages, absl::Time now);
  bool HasPullWork() const { return !ready_.empty() || !ready_keys_.empty(); }

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
  std::vector<StoredMessagePtr> Unacked() const;

  // What outlives a restart (journal.h): the messages whose state may have changed since the last
  // call of TakeTouched(), once RememberChanges() was called.
  void RememberChanges() { remembers_ = true; }
  std::vector<uint64_t> TakeTouched() { return std::exchange(touched_, {}); }
  std::optional<EntryState> StateOf(uint64_t sequence) const;
  // Adds a message as it was before a restart, in the order of their sequences.
  void Recover(StoredMessagePtr message, const EntryState& state);

  // Removes and returns the messages that have used up their attempts since the last call.
  std::vector<DeadLetter> TakeDeadLetters() { return std::exchange(dead_letters_, {}); }

  size_t backlog() const { return unacked_ - leases_.size(); }  // waiting or suspended
  size_t leased() const { return leases_.size(); }
  const SubscriptionCounters& counters() const { return counters_; }

 private:
  enum class State { kWaiting, kSuspended, kLeased, kAcked };
  struct Key;
  struct Entry {
    StoredMessagePtr message;
    State state = State::kWaiting;
    Key* key = nullptr;
    uint64_t lease = 0;  // of the last delivery
    absl::Time until;    // end of the lease, or retry_at
    StreamId stream = 0;
    int failures = 0;  // its own nacks and expiries
    int deliveries = 0;
    bool repeated = false;                 // deliver_twice: it is being delivered again
    std::list<Entry*>::iterator ready_at;  // while waiting without a key
  };
  using KeyList = std::list<Key*>;
  struct Key {
    std::string name;
    std::deque<Entry*> entries;  // by sequence; the first is not acked, or is to be repeated
    size_t cursor = 0;           // the first entry that waits
    size_t leased = 0;
    size_t to_repeat = 0;  // deliver_twice: acked once, to be delivered again
    StreamId owner = 0;    // while leased > 0
    absl::Time retry_at = absl::InfinitePast();
    KeyList* list = nullptr;  // the list in which it waits for delivery
    KeyList::iterator at;
  };
  struct Stream {
    FlowControl flow_control;
    absl::Duration ack_deadline;
    int64_t messages = 0;  // leased
    int64_t bytes = 0;
    KeyList ready_keys;  // keys whose leased messages belong to this stream
  };
  // How much more one Take may lease. A message that exceeds the limits is delivered alone.
  struct Budget {
    int64_t messages = 0;
    int64_t flow_bytes = std::numeric_limits<int64_t>::max();
    int64_t response_bytes = 0;
    bool stream_empty = true;    // the stream holds no message
    bool response_empty = true;  // no message was taken yet
    bool Admits(const Entry& entry) const;
    void Spend(const Entry& entry);
  };
  struct Candidate {
    Key* key = nullptr;
    Entry* entry = nullptr;
  };

  bool ordered() const { return config_.enable_message_ordering(); }
  bool exactly_once() const { return config_.enable_exactly_once_delivery(); }
  bool FilterMatches(const StoredMessage& message) const {
    return !filter_ || filter_->Matches(message.Parse());
  }
  Budget StreamBudget(const Stream& stream) const;
  // The message to be delivered next. `stream` is null for a Pull.
  Candidate Next(const Stream* stream) const;
  std::vector<LeasedMessage> TakeWithin(Budget budget, StreamId id, Stream* stream,
                                        absl::Time lease_end);
  LeasedMessage Lease(Entry* entry, StreamId id, Stream* stream, absl::Time lease_end);
  void EndLease(Entry* entry);
  // The entry of which `id` is the current delivery; null if there is none.
  Entry* Current(const AckId& id) const;
  bool EarlierUnacked(const Entry& entry) const;
  void Touch(const Entry& entry) {
    if (remembers_) touched_.push_back(entry.message->sequence);
  }
  void Ack(Entry* entry);
  void Fail(Entry* entry, absl::Time now);
  bool ToDeadLetter(Entry* entry);
  absl::Duration Backoff(const Entry& entry) const;
  // Makes a message that was leased wait until retry_at; of a message with a key, all later ones of
  // the key, too. InfinitePast means that it can be delivered again at once.
  void Wait(Entry* entry, absl::Time retry_at);
  void Enqueue(Entry* entry);
  static size_t IndexOf(const Entry& entry);
  // Called after any change of a key. Drops messages that are done, begins their second delivery if
  // it is due, and puts the key into the list from which it may be delivered now, if there is one.
  // Removes an empty key.
  void Settle(Key* key);
  static void Unplace(Key* key);
  void Suspend(Key* key, absl::Time until);
  // Removes the entry from all queues.
  void Drop(Entry* entry);
  // Stores a message as acked, if it is not there.
  void Restore(const StoredMessagePtr& message);
  // Makes every entry acked or waiting, and builds the queues again.
  void Rebuild(const std::function<bool(const Entry&)>& acked);
  absl::Time RetentionEnd() const;

  google::pubsub::v1::Subscription config_;
  const std::optional<Filter> filter_;
  const uint64_t incarnation_;
  const bool deliver_twice_;
  const TopicExists topic_exists_;

  absl::btree_map<uint64_t, std::unique_ptr<Entry>> entries_;  // by sequence
  std::list<Entry*> ready_;                                    // waiting, without a key
  KeyList ready_keys_;  // keys with waiting messages and none leased
  absl::flat_hash_map<std::string, std::unique_ptr<Key>> keys_;
  absl::flat_hash_map<StreamId, std::unique_ptr<Stream>> streams_;
  absl::btree_set<std::pair<absl::Time, uint64_t>> leases_;     // (end, sequence)
  absl::btree_set<std::pair<absl::Time, uint64_t>> suspended_;  // of messages without a key
  std::map<std::pair<absl::Time, std::string>, Key*> suspended_keys_;
  size_t unacked_ = 0;  // entries that are not acked
  uint64_t last_lease_ = 0;
  StreamId last_stream_ = 0;
  bool keys_first_ = true;  // messages with and without a key take turns
  std::vector<DeadLetter> dead_letters_;
  bool remembers_ = false;
  std::vector<uint64_t> touched_;
  SubscriptionCounters counters_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_SUBSCRIPTION_H_
