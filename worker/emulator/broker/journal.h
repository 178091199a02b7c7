// What a Broker tells its data directory. Without one it tells nothing: every call returns at once.
//
// The changes of one operation are gathered and written together by Write(), while the mutex of the
// broker is still held. So what was answered is on disk, and what is on disk is the state between
// two operations.
//
// A message is kept as long as something refers to it: a subscription, a snapshot, the retention of
// its topic, or the queue of what is to be delivered. Keep() hands out the references. When the
// last is gone, the next Write() removes the message.
//
// Leases are not kept. What was leased is delivered again after a restart, under new ack ids.
#ifndef POSTBOX_WORKER_EMULATOR_BROKER_JOURNAL_H_
#define POSTBOX_WORKER_EMULATOR_BROKER_JOURNAL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/iam/v1/policy.pb.h"
#include "google/pubsub/v1/pubsub.pb.h"
#include "google/pubsub/v1/schema.pb.h"
#include "worker/emulator/store/record_store.h"
#include "worker/emulator/subscription/entries.h"
#include "worker/emulator/subscription/stored_message.h"

namespace postbox::emulator {

class Journal {
 public:
  // The kinds of records. The numbers are on disk.
  enum Kind {
    kTopic = 1,          // by name
    kSubscription = 2,   // by name
    kSnapshot = 3,       // by name
    kSchema = 4,         // by name; all revisions
    kMessage = 5,        // by sequence
    kEntry = 6,          // by subscription and sequence
    kSnapshotEntry = 7,  // by snapshot and sequence
    kRetained = 8,       // by topic and sequence
    kDelivered = 9,      // by topic: the last sequence that was delivered
  };

  // Once, before anything else; without this call nothing is kept.
  absl::Status Open(const std::string& directory);
  bool on() const { return store_ != nullptr; }
  RecordStore* store() { return store_.get(); }

  void TopicChanged(const google::pubsub::v1::Topic& topic, const google::iam::v1::Policy& policy);
  // With all that is kept for it.
  void TopicDeleted(const std::string& name);
  void Delivered(const std::string& topic, uint64_t sequence);
  void Retained(const std::string& topic, uint64_t sequence, bool retained);
  void NoneRetained(const std::string& topic);

  void SubscriptionChanged(const google::pubsub::v1::Subscription& subscription,
                           const google::iam::v1::Policy& policy);
  void SubscriptionDeleted(const std::string& name);
  void EntryChanged(const std::string& subscription, uint64_t sequence,
                    const std::optional<EntryState>& state);

  void SnapshotChanged(const google::pubsub::v1::Snapshot& snapshot,
                       const google::iam::v1::Policy& policy);
  void SnapshotDeleted(const std::string& name);
  void SnapshotHas(const std::string& snapshot, uint64_t sequence);

  // Returns a reference to the same message that removes it from the disk with its last copy.
  std::shared_ptr<StoredMessage> Keep(std::shared_ptr<StoredMessage> message);
  void MessageTaken(const std::string& topic, const StoredMessage& message);

  void Write();

  // At once, and on any thread. Without revisions the schema is gone.
  void SchemaChanged(const std::string& name,
                     const google::pubsub::v1::ListSchemaRevisionsResponse& revisions);

  static uint64_t Sequence(absl::string_view key);  // of the end of a key
  static std::string Owner(absl::string_view key);  // what is before it

 private:
  class Unreferenced;

  void Put(Kind kind, std::string key, std::string value);
  void Remove(Kind kind, std::string key);
  void RemoveAllOf(Kind kind, const std::string& owner);

  std::unique_ptr<RecordStore> store_;
  RecordStore::Changes changes_;
  std::shared_ptr<Unreferenced> unreferenced_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_BROKER_JOURNAL_H_
