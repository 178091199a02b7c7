// The state of the broker in a data directory: what is told to the journal, and what is read from
// it at the start.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "postbox/emulator/v1/records.pb.h"
#include "worker/emulator/broker/broker.h"
#include "worker/emulator/broker/broker_internal.h"

namespace postbox::emulator {

namespace pb = google::pubsub::v1;
namespace records = postbox::emulator::v1;

namespace {

template <class Record>
absl::StatusOr<Record> Parse(absl::string_view value) {
  Record record;
  if (record.ParseFromArray(value.data(), static_cast<int>(value.size()))) return record;
  return absl::DataLossError(
      absl::StrCat("a ", Record::descriptor()->name(), " in the data directory cannot be read"));
}

}  // namespace

void Broker::Save(const std::string& resource) {
  if (!journal_.on()) return;
  if (const auto topic = topics_.find(resource); topic != topics_.end()) {
    journal_.TopicChanged(topic->second.proto, topic->second.policy);
  } else if (const auto feed = feeds_.find(resource); feed != feeds_.end()) {
    journal_.SubscriptionChanged(feed->second->state.config(), feed->second->policy);
  } else if (const auto snapshot = snapshots_.find(resource); snapshot != snapshots_.end()) {
    journal_.SnapshotChanged(snapshot->second.proto, snapshot->second.policy);
  }
}

void Broker::SaveEntries(Feed* feed) {
  if (!journal_.on()) return;
  const std::vector<uint64_t> touched = feed->state.entries().TakeTouched();
  if (feed->deleted) return;  // one of the same name may exist by now
  for (const uint64_t sequence : touched) {
    journal_.EntryChanged(feed->state.config().name(), sequence,
                          feed->state.entries().StateOf(sequence));
  }
}

absl::Status Broker::Recover() {
  if (options_.data_directory.empty()) return absl::OkStatus();
  WakeList nobody;
  const Change change(this);
  if (auto s = journal_.Open(options_.data_directory); !s.ok()) return s;
  if (auto s = RecoverSchemas(); !s.ok()) return s;
  if (auto s = RecoverResources(); !s.ok()) return s;
  const auto messages = RecoverMessages();
  if (!messages.ok()) return messages.status();
  if (auto s = RecoverReferences(*messages); !s.ok()) return s;
  for (auto& [name, topic] : topics_) DeliverAll(&topic, absl::InfiniteFuture(), &nobody);
  return absl::OkStatus();
}

absl::Status Broker::RecoverSchemas() {
  RecordStore* store = journal_.store();
  const auto load = [this](absl::string_view, absl::string_view value) -> absl::Status {
    const auto revisions = Parse<pb::ListSchemaRevisionsResponse>(value);
    return revisions.ok() ? schemas_.Recover(*revisions) : revisions.status();
  };
  if (auto s = store->ForEach(Journal::kSchema, load); !s.ok()) return s;
  schemas_.WhenChanged(
      [this](const std::string& name, const pb::ListSchemaRevisionsResponse& revisions)
          ABSL_NO_THREAD_SAFETY_ANALYSIS { journal_.SchemaChanged(name, revisions); });
  return absl::OkStatus();
}

absl::Status Broker::RecoverResources() {
  RecordStore* store = journal_.store();
  const auto topic = [this](absl::string_view, absl::string_view value)
                         ABSL_NO_THREAD_SAFETY_ANALYSIS -> absl::Status {
    const auto record = Parse<records::TopicRecord>(value);
    if (!record.ok()) return record.status();
    Topic& added = topics_[record->topic().name()];
    added.proto = record->topic();
    added.policy = record->policy();
    return absl::OkStatus();
  };
  const auto subscription = [this](absl::string_view, absl::string_view value)
                                ABSL_NO_THREAD_SAFETY_ANALYSIS -> absl::Status {
    const auto record = Parse<records::SubscriptionRecord>(value);
    if (!record.ok()) return record.status();
    AddFeed(record->subscription())->policy = record->policy();
    return absl::OkStatus();
  };
  const auto snapshot = [this](absl::string_view, absl::string_view value)
                            ABSL_NO_THREAD_SAFETY_ANALYSIS -> absl::Status {
    const auto record = Parse<records::SnapshotRecord>(value);
    if (!record.ok()) return record.status();
    Snapshot& added = snapshots_[record->snapshot().name()];
    added.proto = record->snapshot();
    added.policy = record->policy();
    added.expires = ToTime(added.proto.expire_time());
    return absl::OkStatus();
  };
  if (auto s = store->ForEach(Journal::kTopic, topic); !s.ok()) return s;
  if (auto s = store->ForEach(Journal::kSubscription, subscription); !s.ok()) return s;
  return store->ForEach(Journal::kSnapshot, snapshot);
}

absl::StatusOr<Broker::Messages> Broker::RecoverMessages() {
  std::map<std::string, uint64_t> delivered;
  const auto mark = [&](absl::string_view topic, absl::string_view value)
                        ABSL_NO_THREAD_SAFETY_ANALYSIS {
                          const uint64_t sequence = Journal::Sequence(value);
                          delivered[std::string(topic)] = sequence;
                          last_sequence_ = std::max(last_sequence_, sequence);
                          return absl::OkStatus();
                        };
  if (auto s = journal_.store()->ForEach(Journal::kDelivered, mark); !s.ok()) return s;
  Messages messages;
  const auto load = [&](absl::string_view key, absl::string_view value)
                        ABSL_NO_THREAD_SAFETY_ANALYSIS -> absl::Status {
    auto record = Parse<records::MessageRecord>(value);
    if (!record.ok()) return record.status();
    auto message = std::make_shared<StoredMessage>();
    message->wire = std::move(*record->mutable_message());
    message->ordering_key = record->ordering_key();
    message->sequence = Journal::Sequence(key);
    message->published = ToTime(record->published());
    last_sequence_ = std::max(last_sequence_, message->sequence);
    auto kept = journal_.Keep(std::move(message));
    messages.emplace(kept->sequence, kept);
    // Those that were accepted, and perhaps answered, but not delivered.
    const auto topic = topics_.find(record->topic());
    if (topic != topics_.end() && kept->sequence > delivered[record->topic()]) {
      topic->second.undelivered.push_back(std::make_shared<Undelivered>(
          Undelivered{record->topic(), {kept}, clock_(), /*due=*/true}));
    }
    return absl::OkStatus();
  };
  if (auto s = journal_.store()->ForEach(Journal::kMessage, load); !s.ok()) return s;
  return messages;
}

absl::Status Broker::RecoverReferences(const Messages& messages) {
  // Calls `add` with the owner of each record and its message.
  const auto each = [&](Journal::Kind kind, auto add) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return journal_.store()->ForEach(
        kind, [&](absl::string_view key, absl::string_view value) -> absl::Status {
          const auto message = messages.find(Journal::Sequence(key));
          if (message != messages.end()) return add(Journal::Owner(key), message->second, value);
          return absl::DataLossError("a message is missing in the data directory");
        });
  };
  const auto entry =
      [this](const std::string& owner, const StoredMessagePtr& message, absl::string_view value)
          ABSL_NO_THREAD_SAFETY_ANALYSIS -> absl::Status {
    const auto record = Parse<records::EntryRecord>(value);
    if (!record.ok()) return record.status();
    if (const auto feed = feeds_.find(owner); feed != feeds_.end()) {
      feed->second->state.Recover(message, {record->acked(), record->failures()});
    }
    return absl::OkStatus();
  };
  const auto snapshot = [this](const std::string& owner, const StoredMessagePtr& message,
                               absl::string_view) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (const auto at = snapshots_.find(owner); at != snapshots_.end()) {
      at->second.unacked.push_back(message);
    }
    return absl::OkStatus();
  };
  const auto retained = [this](const std::string& owner, const StoredMessagePtr& message,
                               absl::string_view) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (const auto at = topics_.find(owner); at != topics_.end()) {
      at->second.retained.push_back(message);
    }
    return absl::OkStatus();
  };
  if (auto s = each(Journal::kEntry, entry); !s.ok()) return s;
  if (auto s = each(Journal::kSnapshotEntry, snapshot); !s.ok()) return s;
  return each(Journal::kRetained, retained);
}

}  // namespace postbox::emulator
