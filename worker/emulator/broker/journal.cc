#include "worker/emulator/broker/journal.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "postbox/emulator/v1/records.pb.h"

namespace postbox::emulator {

namespace pb = google::pubsub::v1;
namespace records = postbox::emulator::v1;

namespace {

constexpr size_t kSequenceBytes = 8;

// Sorts as the numbers do.
std::string Bytes(uint64_t sequence) {
  std::string bytes(kSequenceBytes, '\0');
  for (size_t i = kSequenceBytes; i > 0; --i, sequence >>= 8) {
    bytes[i - 1] = static_cast<char>(sequence & 0xFF);
  }
  return bytes;
}

// No name has a zero byte, so the keys of an owner begin as those of no other.
std::string Prefix(const std::string& owner) { return owner + '\0'; }
std::string Key(const std::string& owner, uint64_t sequence) {
  return Prefix(owner) + Bytes(sequence);
}

}  // namespace

// The messages whose last reference is gone. It outlives the journal as long as there are messages.
class Journal::Unreferenced {
 public:
  void Add(uint64_t sequence) {
    const std::lock_guard<std::mutex> lock(mu_);
    sequences_.push_back(sequence);
  }
  std::vector<uint64_t> Take() {
    const std::lock_guard<std::mutex> lock(mu_);
    return std::exchange(sequences_, {});
  }

 private:
  std::mutex mu_;
  std::vector<uint64_t> sequences_ ABSL_GUARDED_BY(mu_);
};

absl::Status Journal::Open(const std::string& directory) {
  auto store = RecordStore::Open(directory);
  if (!store.ok()) return store.status();
  store_ = *std::move(store);
  unreferenced_ = std::make_shared<Unreferenced>();
  return absl::OkStatus();
}

void Journal::Put(Kind kind, std::string key, std::string value) {
  if (on()) changes_.push_back({kind, std::move(key), std::move(value)});
}

void Journal::Remove(Kind kind, std::string key) {
  if (on()) changes_.push_back({kind, std::move(key), std::nullopt});
}

void Journal::RemoveAllOf(Kind kind, const std::string& owner) {
  if (on()) changes_.push_back({kind, Prefix(owner), std::nullopt, /*prefix=*/true});
}

void Journal::TopicChanged(const pb::Topic& topic, const google::iam::v1::Policy& policy) {
  if (!on()) return;
  records::TopicRecord record;
  *record.mutable_topic() = topic;
  *record.mutable_policy() = policy;
  Put(kTopic, topic.name(), record.SerializeAsString());
}

void Journal::TopicDeleted(const std::string& name) {
  Remove(kTopic, name);
  Remove(kDelivered, name);
  NoneRetained(name);
}

void Journal::Delivered(const std::string& topic, uint64_t sequence) {
  if (on()) Put(kDelivered, topic, Bytes(sequence));
}

void Journal::Retained(const std::string& topic, uint64_t sequence, bool retained) {
  if (!on()) return;
  if (retained) {
    Put(kRetained, Key(topic, sequence), "");
  } else {
    Remove(kRetained, Key(topic, sequence));
  }
}

void Journal::NoneRetained(const std::string& topic) { RemoveAllOf(kRetained, topic); }

void Journal::SubscriptionChanged(const pb::Subscription& subscription,
                                  const google::iam::v1::Policy& policy) {
  if (!on()) return;
  records::SubscriptionRecord record;
  *record.mutable_subscription() = subscription;
  *record.mutable_policy() = policy;
  Put(kSubscription, subscription.name(), record.SerializeAsString());
}

void Journal::SubscriptionDeleted(const std::string& name) {
  Remove(kSubscription, name);
  RemoveAllOf(kEntry, name);
}

void Journal::EntryChanged(const std::string& subscription, uint64_t sequence,
                           const std::optional<EntryState>& state) {
  if (!on()) return;
  if (!state) return Remove(kEntry, Key(subscription, sequence));
  records::EntryRecord record;
  record.set_acked(state->acked);
  record.set_failures(state->failures);
  Put(kEntry, Key(subscription, sequence), record.SerializeAsString());
}

void Journal::SnapshotChanged(const pb::Snapshot& snapshot, const google::iam::v1::Policy& policy) {
  if (!on()) return;
  records::SnapshotRecord record;
  *record.mutable_snapshot() = snapshot;
  *record.mutable_policy() = policy;
  Put(kSnapshot, snapshot.name(), record.SerializeAsString());
}

void Journal::SnapshotDeleted(const std::string& name) {
  Remove(kSnapshot, name);
  RemoveAllOf(kSnapshotEntry, name);
}

void Journal::SnapshotHas(const std::string& snapshot, uint64_t sequence) {
  if (on()) Put(kSnapshotEntry, Key(snapshot, sequence), "");
}

std::shared_ptr<StoredMessage> Journal::Keep(std::shared_ptr<StoredMessage> message) {
  if (!on()) return message;
  StoredMessage* raw = message.get();
  return {raw, [message = std::move(message), unreferenced = unreferenced_](StoredMessage* kept) {
            unreferenced->Add(kept->sequence);
          }};
}

void Journal::MessageTaken(const std::string& topic, const StoredMessage& message) {
  if (!on()) return;
  records::MessageRecord record;
  record.set_topic(topic);
  record.set_message(message.wire);
  record.set_ordering_key(message.ordering_key);
  SetTimestamp(message.published, record.mutable_published());
  Put(kMessage, Bytes(message.sequence), record.SerializeAsString());
}

void Journal::Write() {
  if (!on()) return;
  for (const uint64_t sequence : unreferenced_->Take()) Remove(kMessage, Bytes(sequence));
  if (changes_.empty()) return;
  store_->Apply(changes_);
  changes_.clear();
}

void Journal::SchemaChanged(const std::string& name,
                            const pb::ListSchemaRevisionsResponse& revisions) {
  if (!on()) return;
  RecordStore::Change change{kSchema, name, std::nullopt};
  if (revisions.schemas_size() > 0) change.value = revisions.SerializeAsString();
  store_->Apply({std::move(change)});
}

uint64_t Journal::Sequence(absl::string_view key) {
  uint64_t sequence = 0;
  for (const char byte : key.substr(key.size() - std::min(key.size(), kSequenceBytes))) {
    sequence = sequence << 8 | static_cast<unsigned char>(byte);
  }
  return sequence;
}

std::string Journal::Owner(absl::string_view key) {
  return std::string(key.substr(0, key.find('\0')));
}

}  // namespace postbox::emulator
