#include "worker/emulator/broker/snapshot_calls.h"

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/emulator/rules/labels.h"
#include "worker/emulator/rules/paging.h"
#include "worker/emulator/rules/service_limits.h"
#include "worker/emulator/rules/unsupported.h"
#include "worker/emulator/rules/update_mask.h"
#include "worker/emulator/rules/validation.h"

namespace postbox::emulator {

namespace pb = google::pubsub::v1;

absl::Status SnapshotCalls::Seek(const pb::SeekRequest& request) {
  if (auto s = CheckName(request.subscription(), "subscriptions"); !s.ok()) return s;
  if (request.target_case() == pb::SeekRequest::TARGET_NOT_SET) {
    return absl::InvalidArgumentError("a seek needs a time or a snapshot");
  }
  if (auto s = request.has_time() ? CheckTime(request.time(), "time")
                                  : CheckName(request.snapshot(), "snapshots");
      !s.ok()) {
    return s;
  }
  state_->DeliverAccepted();
  const FeedChange feed(state_, request.subscription());
  if (!feed.status().ok()) return feed.status();
  if (auto s = feed.CheckAttached(); !s.ok()) return s;
  Resources& resources = feed.broker()->resources;
  const TopicState* topic = resources.FindTopic(feed->config().topic());
  if (request.has_time()) {
    feed->Seek(ToTime(request.time()),
               topic == nullptr ? std::deque<StoredMessagePtr>() : topic->retained);
    return absl::OkStatus();
  }
  const auto snapshot = resources.snapshots().find(request.snapshot());
  if (snapshot == resources.snapshots().end()) return NotFound(request.snapshot());
  // Deleted topics have one name, and are not the same.
  if (snapshot->second.proto.topic() != feed->config().topic() || topic == nullptr) {
    return absl::FailedPreconditionError(
        "a subscription can seek only to a snapshot of its own topic");
  }
  feed->Seek(snapshot->second.unacked);
  return absl::OkStatus();
}

absl::StatusOr<pb::Snapshot> SnapshotCalls::Create(const pb::CreateSnapshotRequest& request) {
  if (!request.name().empty()) {
    if (auto s = CheckName(request.name(), "snapshots"); !s.ok()) return s;
  }
  if (auto s = CheckName(request.subscription(), "subscriptions"); !s.ok()) return s;
  if (auto s = CheckKnown(request); !s.ok()) return s;
  if (auto s = CheckLabels(request.labels()); !s.ok()) return s;
  state_->DeliverAccepted();
  const FeedChange feed(state_, request.subscription());
  if (!feed.status().ok()) return feed.status();
  if (auto s = feed.CheckAttached(); !s.ok()) return s;
  Resources& resources = feed.broker()->resources;
  const std::string name = request.name().empty()
                               ? resources.NewName(request.subscription(), "snapshot")
                               : request.name();
  if (resources.snapshots().contains(name)) return AlreadyExists(name);
  SnapshotState snapshot;
  snapshot.unacked = feed->entries().Unacked();
  snapshot.expires = absl::Seconds(kSnapshotSeconds) +
                     (snapshot.unacked.empty() ? feed.now() : snapshot.unacked.front()->published);
  if (snapshot.expires < feed.now() + absl::Seconds(kMinSnapshotSeconds)) {
    return absl::FailedPreconditionError(
        "the snapshot would expire within an hour: the backlog of its subscription is too old");
  }
  snapshot.proto.set_name(name);
  snapshot.proto.set_topic(feed->config().topic());
  *snapshot.proto.mutable_labels() = request.labels();
  SetTimestamp(snapshot.expires, snapshot.proto.mutable_expire_time());
  for (const auto& message : snapshot.unacked) {
    feed.broker()->journal.SnapshotHas(name, message->sequence);
  }
  const auto at = resources.snapshots().emplace(name, std::move(snapshot)).first;
  resources.Save(name);
  return at->second.proto;
}

absl::StatusOr<pb::Snapshot> SnapshotCalls::Update(const pb::UpdateSnapshotRequest& request) {
  const pb::Snapshot& wanted = request.snapshot();
  if (auto s = CheckName(wanted.name(), "snapshots"); !s.ok()) return s;
  if (auto s = CheckMask(request.update_mask()); !s.ok()) return s;
  const BrokerChange change(state_);
  auto& snapshots = change->resources.snapshots();
  const auto found = snapshots.find(wanted.name());
  if (found == snapshots.end()) return NotFound(wanted.name());
  SnapshotState& snapshot = found->second;
  pb::Snapshot changed = snapshot.proto;
  for (const std::string& path : request.update_mask().paths()) {
    if (path == "labels") {
      if (auto s = CheckLabels(wanted.labels()); !s.ok()) return s;
      *changed.mutable_labels() = wanted.labels();
    } else if (path == "expire_time") {
      if (auto s = CheckTime(wanted.expire_time(), "expire_time"); !s.ok()) return s;
      const absl::Time now = change->clock();
      const absl::Time expires = ToTime(wanted.expire_time());
      if (expires <= now || expires > now + absl::Seconds(kSnapshotSeconds)) {
        return absl::InvalidArgumentError("expire_time must be within the next 7 days");
      }
      *changed.mutable_expire_time() = wanted.expire_time();
    } else {
      return CannotUpdate(*pb::Snapshot::descriptor(), path);
    }
  }
  snapshot.proto = std::move(changed);
  snapshot.expires = ToTime(snapshot.proto.expire_time());
  change->resources.Save(wanted.name());
  return snapshot.proto;
}

absl::StatusOr<pb::Snapshot> SnapshotCalls::Get(const std::string& name) {
  if (auto s = CheckName(name, "snapshots"); !s.ok()) return s;
  const BrokerAccess access(state_);
  const auto& snapshots = access->resources.snapshots();
  const auto found = snapshots.find(name);
  if (found == snapshots.end()) return NotFound(name);
  return found->second.proto;
}

absl::StatusOr<pb::ListSnapshotsResponse> SnapshotCalls::List(
    const pb::ListSnapshotsRequest& request) {
  if (auto s = CheckProject(request.project()); !s.ok()) return s;
  if (auto s = CheckPage(request.page_size(), request.page_token(), "snapshots"); !s.ok()) return s;
  pb::ListSnapshotsResponse response;
  const std::string prefix = absl::StrCat(request.project(), "/snapshots/");
  const BrokerAccess access(state_);
  response.set_next_page_token(Page(
      access->resources.snapshots(), request.page_size(), request.page_token(),
      [&](const std::string& name) { return absl::StartsWith(name, prefix); },
      [&](const auto& item) { *response.add_snapshots() = item.second.proto; }));
  return response;
}

absl::Status SnapshotCalls::Delete(const std::string& name) {
  if (auto s = CheckName(name, "snapshots"); !s.ok()) return s;
  const BrokerChange change(state_);
  if (change->resources.snapshots().erase(name) == 0) return NotFound(name);
  change->journal.SnapshotDeleted(name);
  return absl::OkStatus();
}

}  // namespace postbox::emulator
