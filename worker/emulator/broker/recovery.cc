#include "worker/emulator/broker/recovery.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "postbox/emulator/v1/records.pb.h"

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

absl::Status Recovery::Run() {
  if (auto s = RecoverSchemas(); !s.ok()) return s;
  if (auto s = RecoverResources(); !s.ok()) return s;
  if (auto s = RecoverMessages(); !s.ok()) return s;
  return RecoverReferences();
}

absl::Status Recovery::RecoverSchemas() {
  RecordStore* store = state_.journal.store();
  const auto load = [this](absl::string_view, absl::string_view value) -> absl::Status {
    const auto revisions = Parse<pb::ListSchemaRevisionsResponse>(value);
    return revisions.ok() ? schemas_.Recover(*revisions) : revisions.status();
  };
  if (auto s = store->ForEach(Journal::kSchema, load); !s.ok()) return s;
  schemas_.WhenChanged(
      [journal = &state_.journal](const std::string& name,
                                  const pb::ListSchemaRevisionsResponse& revisions) {
        journal->SchemaChanged(name, revisions);
      });
  return absl::OkStatus();
}

absl::Status Recovery::RecoverResources() {
  RecordStore* store = state_.journal.store();
  const auto topic = [this](absl::string_view, absl::string_view value) -> absl::Status {
    const auto record = Parse<records::TopicRecord>(value);
    if (!record.ok()) return record.status();
    TopicState& added = resources_.topics()[record->topic().name()];
    added.proto = record->topic();
    added.policy = record->policy();
    return absl::OkStatus();
  };
  const auto subscription = [this](absl::string_view, absl::string_view value) -> absl::Status {
    const auto record = Parse<records::SubscriptionRecord>(value);
    if (!record.ok()) return record.status();
    resources_.AddFeed(record->subscription())->policy = record->policy();
    return absl::OkStatus();
  };
  const auto snapshot = [this](absl::string_view, absl::string_view value) -> absl::Status {
    const auto record = Parse<records::SnapshotRecord>(value);
    if (!record.ok()) return record.status();
    SnapshotState& added = resources_.snapshots()[record->snapshot().name()];
    added.proto = record->snapshot();
    added.policy = record->policy();
    added.expires = ToTime(added.proto.expire_time());
    return absl::OkStatus();
  };
  if (auto s = store->ForEach(Journal::kTopic, topic); !s.ok()) return s;
  if (auto s = store->ForEach(Journal::kSubscription, subscription); !s.ok()) return s;
  return store->ForEach(Journal::kSnapshot, snapshot);
}

absl::Status Recovery::RecoverMessages() {
  std::map<std::string, uint64_t> delivered;
  const auto mark = [&](absl::string_view topic, absl::string_view value) {
    const uint64_t sequence = Journal::Sequence(value);
    delivered[std::string(topic)] = sequence;
    state_.ids.SkipTo(sequence);
    return absl::OkStatus();
  };
  if (auto s = state_.journal.store()->ForEach(Journal::kDelivered, mark); !s.ok()) return s;
  const auto load = [&](absl::string_view key, absl::string_view value) -> absl::Status {
    auto record = Parse<records::MessageRecord>(value);
    if (!record.ok()) return record.status();
    auto message = std::make_shared<StoredMessage>();
    message->wire = std::move(*record->mutable_message());
    message->ordering_key = record->ordering_key();
    message->sequence = Journal::Sequence(key);
    message->published = ToTime(record->published());
    state_.ids.SkipTo(message->sequence);
    auto kept = state_.journal.Keep(std::move(message));
    messages_.emplace(kept->sequence, kept);
    // Those that were accepted, and perhaps answered, but not delivered.
    TopicState* topic = resources_.FindTopic(record->topic());
    if (topic != nullptr && kept->sequence > delivered[record->topic()]) {
      topic->undelivered.push_back(std::make_shared<Undelivered>(
          Undelivered{record->topic(), {kept}, state_.clock(), /*due=*/true}));
    }
    return absl::OkStatus();
  };
  return state_.journal.store()->ForEach(Journal::kMessage, load);
}

absl::Status Recovery::RecoverReferences() {
  // Calls `add` with the owner of each record and its message.
  const auto each = [&](Journal::Kind kind, auto add) {
    return state_.journal.store()->ForEach(
        kind, [&](absl::string_view key, absl::string_view value) -> absl::Status {
          const auto message = messages_.find(Journal::Sequence(key));
          if (message != messages_.end()) return add(Journal::Owner(key), message->second, value);
          return absl::DataLossError("a message is missing in the data directory");
        });
  };
  const auto entry = [this](const std::string& owner, const StoredMessagePtr& message,
                            absl::string_view value) -> absl::Status {
    const auto record = Parse<records::EntryRecord>(value);
    if (!record.ok()) return record.status();
    if (const auto feed = resources_.feeds().find(owner); feed != resources_.feeds().end()) {
      feed->second->state.Recover(message, {record->acked(), record->failures()});
    }
    return absl::OkStatus();
  };
  const auto snapshot = [this](const std::string& owner, const StoredMessagePtr& message,
                               absl::string_view) {
    if (const auto at = resources_.snapshots().find(owner); at != resources_.snapshots().end()) {
      at->second.unacked.push_back(message);
    }
    return absl::OkStatus();
  };
  const auto retained = [this](const std::string& owner, const StoredMessagePtr& message,
                               absl::string_view) {
    if (const auto at = resources_.topics().find(owner); at != resources_.topics().end()) {
      at->second.retained.push_back(message);
    }
    return absl::OkStatus();
  };
  if (auto s = each(Journal::kEntry, entry); !s.ok()) return s;
  if (auto s = each(Journal::kSnapshotEntry, snapshot); !s.ok()) return s;
  return each(Journal::kRetained, retained);
}

}  // namespace postbox::emulator
