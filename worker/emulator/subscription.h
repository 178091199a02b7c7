// What a subscription knows and decides: which message may be delivered to whom, when a delivery is
// over, and what comes after it. A plain state machine: no threads, no clock, no gRPC. The caller
// (Broker) serialises calls and says what time it is.
//
// A message is in one of these states:
//
//   waiting --Take/Pull--> leased --Acknowledge--> acked (gone, or kept for a seek)
//      ^                      |
//      |                      +-- nack (deadline 0) or expired deadline
//      |                      v
//      +---- after backoff -- resting (only with a retry policy)
//
// Invariants:
// - Every delivery is a new lease with a new ack id. An ack id of an older lease changes nothing.
// - Ordering (enable_message_ordering, message with a key): the messages of a key stand in one
//   queue with a cursor. What is before the cursor is leased or acked, what is behind it waits. All
//   leased messages of a key belong to one stream or to one Pull.
// - Redelivery of an ordered message moves the cursor back to it: all later messages of the key
//   are taken back, acked ones too, and come again behind it in order. Their ack ids are void.
// - Exactly-once: an ack counts only while its lease is the current one, and, with ordering, only
//   when all earlier messages of the key are acked; so nothing acked is ever delivered again.
// - delivery_attempt is 1 + the message's own nacks and expiries, not those it suffers by cascade.
// - With `deliver_twice` an ack of the first delivery is taken as "deliver it once more"; ordered
//   messages come again as a run, when nothing of their key is leased.
#ifndef POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_H_
#define POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "google/pubsub/v1/pubsub.pb.h"
#include "worker/emulator/ack_id.h"
#include "worker/emulator/stored_message.h"

namespace postbox::emulator {

// What a stream is willing to hold unacknowledged. 0 and below: no limit.
struct FlowControl {
  int64_t max_messages = 0;
  int64_t max_bytes = 0;
};

struct LeasedMessage {
  StoredMessagePtr message;
  AckId ack_id;
  int delivery_attempt = 0;  // 0 without a dead-letter policy
};

// A message that used up its delivery attempts, ready to be published to `topic`.
struct DeadLetter {
  std::string topic;
  google::pubsub::v1::PubsubMessage message;
};

// What became of the ack ids of one request.
struct AckOutcome {
  std::vector<std::string> done;
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

class Subscription {
 public:
  using StreamId = uint64_t;
  using TopicExists = std::function<bool(const std::string& topic)>;

  // `incarnation` tells ack ids of this subscription from those of an earlier one of its name.
  // `config` was checked, and its defaults filled in, before.
  Subscription(google::pubsub::v1::Subscription config, uint64_t incarnation, bool deliver_twice,
               TopicExists topic_exists);
  Subscription(const Subscription&) = delete;
  Subscription& operator=(const Subscription&) = delete;

  const google::pubsub::v1::Subscription& config() const { return config_; }
  // Name, topic and ordering must stay what they were.
  void Configure(google::pubsub::v1::Subscription config) { config_ = std::move(config); }
  void TopicDeleted() { config_.set_topic("_deleted-topic_"); }

  // A message that the topic took after this subscription was made; sequences go up.
  void Add(StoredMessagePtr message);

  StreamId OpenStream(FlowControl flow_control, absl::Duration ack_deadline);
  void SetStreamDeadline(StreamId id, absl::Duration ack_deadline);
  // What the stream holds stays leased until its deadline, or is given back at once.
  void CloseStream(StreamId id, bool give_back);
  // Leases what the stream may have now, in order, within the limits of one response.
  std::vector<LeasedMessage> Take(StreamId id, absl::Time now);
  // True if Take(id) would find something.
  bool HasWork(StreamId id) const;

  // Leases for a unary Pull. One batch of a key is outstanding at a time.
  std::vector<LeasedMessage> Pull(int max_messages, absl::Time now);
  bool HasPullWork() const { return !ready_.empty() || !ready_keys_.empty(); }

  // Makes deliveries that never left the server undone.
  void GiveBack(const std::vector<LeasedMessage>& deliveries);

  AckOutcome Acknowledge(const std::vector<std::string>& ack_ids);
  // seconds == 0 is a nack.
  AckOutcome ModifyAckDeadline(const std::vector<std::pair<std::string, int>>& changes,
                              absl::Time now);

  // Ends leases and rests that are over, drops messages older than the retention.
  void Tick(absl::Time now);
  // When Tick has something to do; InfiniteFuture if never.
  absl::Time next_tick() const;

  // Everything published before `time` becomes acked, everything else (that is still there)
  // unacked.
  void Seek(absl::Time time);
  // Exactly the messages of `unacked` (by sequence) become unacked.
  void Seek(const std::vector<StoredMessagePtr>& unacked);
  std::vector<StoredMessagePtr> Unacked() const;

  // Messages that used up their attempts since the last call. They are gone from here.
  std::vector<DeadLetter> TakeDeadLetters() { return std::exchange(dead_letters_, {}); }

  size_t backlog() const { return unacked_ - leases_.size(); }  // waiting or resting
  size_t leased() const { return leases_.size(); }
  const SubscriptionCounters& counters() const { return counters_; }

 private:
  enum class State { kWaiting, kResting, kLeased, kAcked };
  struct Key;
  struct Entry {
    StoredMessagePtr message;
    State state = State::kWaiting;
    Key* key = nullptr;
    uint64_t lease = 0;  // of the last delivery
    absl::Time until;    // end of the lease or rest
    StreamId stream = 0;
    int failures = 0;  // own nacks and expiries
    int deliveries = 0;
    bool repeated = false;                 // deliver_twice: the second round has begun
    std::list<Entry*>::iterator ready_at;  // while waiting without a key
  };
  using KeyList = std::list<Key*>;
  struct Key {
    std::string name;
    std::deque<Entry*> entries;  // by sequence; the front one is not acked (unless to be repeated)
    size_t cursor = 0;           // the first entry that waits
    size_t leased = 0;
    size_t to_repeat = 0;  // deliver_twice: acked once, to be delivered again
    StreamId owner = 0;    // while leased > 0
    absl::Time rest_until = absl::InfinitePast();
    KeyList* list = nullptr;  // where it is queued for delivery
    KeyList::iterator at;
  };
  struct Stream {
    FlowControl flow_control;
    absl::Duration ack_deadline;
    int64_t messages = 0;  // leased
    int64_t bytes = 0;
    KeyList ready_keys;  // keys whose leased messages belong to this stream
  };
  // How much more one Take may lease. What is too large for the limits goes alone.
  struct Budget {
    int64_t messages = 0;
    int64_t flow_bytes = std::numeric_limits<int64_t>::max();
    int64_t response_bytes = 0;
    bool stream_empty = true;    // the stream holds nothing
    bool response_empty = true;  // nothing was taken yet
    bool Admits(const Entry& entry) const;
    void Spend(const Entry& entry);
  };
  struct Candidate {
    Key* key = nullptr;
    Entry* entry = nullptr;
  };

  bool ordered() const { return config_.enable_message_ordering(); }
  bool exactly_once() const { return config_.enable_exactly_once_delivery(); }
  Budget StreamBudget(const Stream& stream) const;
  // What would be delivered next; `stream` is null for a Pull.
  Candidate Next(const Stream* stream) const;
  std::vector<LeasedMessage> TakeWithin(Budget budget, StreamId id, Stream* stream,
                                   absl::Time lease_end);
  LeasedMessage Lease(Entry* entry, StreamId id, Stream* stream, absl::Time lease_end);
  void EndLease(Entry* entry);
  // The entry whose delivery `id` is; null if that delivery does not count any more.
  Entry* Current(const AckId& id) const;
  bool EarlierUnacked(const Entry& entry) const;
  void Ack(Entry* entry);
  void Fail(Entry* entry, absl::Time now);
  bool ToDeadLetter(Entry* entry);
  absl::Duration Backoff(const Entry& entry) const;
  // Makes a message that was leased wait; of a keyed one, all later ones of its key, too.
  // InfinitePast: no rest.
  void Wait(Entry* entry, absl::Time rest_until);
  void Enqueue(Entry* entry);
  static size_t IndexOf(const Entry& entry);
  // After any change of a key: drops what is done with, begins its second round, and puts it into
  // the list from which it may be delivered now (or into none). Ends an empty key.
  void Settle(Key* key);
  static void Unplace(Key* key);
  void SetRest(Key* key, absl::Time until);
  // Takes the entry out of every queue and forgets it.
  void Drop(Entry* entry);
  // Sets every entry to acked or waiting, and builds the queues again.
  void Rebuild(const std::function<bool(const Entry&)>& acked);
  absl::Time RetentionEnd() const;

  google::pubsub::v1::Subscription config_;
  const uint64_t incarnation_;
  const bool deliver_twice_;
  const TopicExists topic_exists_;

  absl::btree_map<uint64_t, std::unique_ptr<Entry>> entries_;  // by sequence
  std::list<Entry*> ready_;                                    // waiting, without a key
  KeyList ready_keys_;  // keys with waiting messages and none leased
  absl::flat_hash_map<std::string, std::unique_ptr<Key>> keys_;
  absl::flat_hash_map<StreamId, std::unique_ptr<Stream>> streams_;
  absl::btree_set<std::pair<absl::Time, uint64_t>> leases_;  // (end, sequence)
  absl::btree_set<std::pair<absl::Time, uint64_t>> rests_;   // of messages without a key
  std::map<std::pair<absl::Time, std::string>, Key*> key_rests_;
  size_t unacked_ = 0;  // entries that are not acked
  uint64_t last_lease_ = 0;
  StreamId last_stream_ = 0;
  bool keys_first_ = true;  // keyed and other messages take turns
  std::vector<DeadLetter> dead_letters_;
  SubscriptionCounters counters_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_H_
