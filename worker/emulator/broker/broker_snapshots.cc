// Seeks and snapshots.
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/emulator/broker/broker.h"
#include "worker/emulator/broker/broker_internal.h"
#include "worker/emulator/rules/labels.h"
#include "worker/emulator/rules/paging.h"
#include "worker/emulator/rules/service_limits.h"
#include "worker/emulator/rules/unsupported.h"
#include "worker/emulator/rules/validation.h"

namespace postbox::emulator {

namespace pb = google::pubsub::v1;

absl::Status Broker::Seek(const pb::SeekRequest& request) {
  if (auto s = CheckName(request.subscription(), "subscriptions"); !s.ok()) return s;
  if (request.target_case() == pb::SeekRequest::TARGET_NOT_SET) {
    return absl::InvalidArgumentError("a seek needs a time or a snapshot");
  }
  if (auto s = request.has_time() ? CheckTime(request.time(), "time")
                                  : CheckName(request.snapshot(), "snapshots");
      !s.ok()) {
    return s;
  }
  DeliverAccepted();
  const auto feed = LookUp(request.subscription());
  if (!feed.ok()) return feed.status();
  if (request.has_time()) {
    return With(
        *feed, [&](Subscription* state, absl::Time) ABSL_NO_THREAD_SAFETY_ANALYSIS -> absl::Status {
          if (state->config().detached()) return Detached(request.subscription());
          const auto topic = topics_.find(state->config().topic());
          state->Seek(ToTime(request.time()), topic == topics_.end()
                                                  ? std::deque<StoredMessagePtr>()
                                                  : topic->second.retained);
          return absl::OkStatus();
        });
  }
  return With(*feed,
              [&](Subscription* state, absl::Time) ABSL_NO_THREAD_SAFETY_ANALYSIS -> absl::Status {
                if (state->config().detached()) return Detached(request.subscription());
                const auto snapshot = snapshots_.find(request.snapshot());
                if (snapshot == snapshots_.end()) return NotFound(request.snapshot());
                // Deleted topics have one name, and are not the same.
                if (snapshot->second.proto.topic() != state->config().topic() ||
                    !topics_.contains(state->config().topic())) {
                  return absl::FailedPreconditionError(
                      "a subscription can seek only to a snapshot of its own topic");
                }
                state->Seek(snapshot->second.unacked);
                return absl::OkStatus();
              });
}

absl::StatusOr<pb::Snapshot> Broker::CreateSnapshot(const pb::CreateSnapshotRequest& request) {
  if (!request.name().empty()) {
    if (auto s = CheckName(request.name(), "snapshots"); !s.ok()) return s;
  }
  if (auto s = CheckName(request.subscription(), "subscriptions"); !s.ok()) return s;
  if (auto s = CheckKnown(request); !s.ok()) return s;
  if (auto s = CheckLabels(request.labels()); !s.ok()) return s;
  DeliverAccepted();
  const auto feed = LookUp(request.subscription());
  if (!feed.ok()) return feed.status();
  const auto create = [&](Subscription* state, absl::Time now)
                          ABSL_NO_THREAD_SAFETY_ANALYSIS -> absl::StatusOr<pb::Snapshot> {
    if (state->config().detached()) return Detached(request.subscription());
    const std::string name =
        request.name().empty() ? NewName(request.subscription(), "snapshot") : request.name();
    if (snapshots_.contains(name)) return AlreadyExists(name);
    Snapshot snapshot;
    snapshot.unacked = state->entries().Unacked();
    snapshot.expires = absl::Seconds(kSnapshotSeconds) +
                       (snapshot.unacked.empty() ? now : snapshot.unacked.front()->published);
    if (snapshot.expires < now + absl::Seconds(kMinSnapshotSeconds)) {
      return absl::FailedPreconditionError(
          "the snapshot would expire within an hour: the backlog of its subscription is too old");
    }
    snapshot.proto.set_name(name);
    snapshot.proto.set_topic(state->config().topic());
    *snapshot.proto.mutable_labels() = request.labels();
    SetTimestamp(snapshot.expires, snapshot.proto.mutable_expire_time());
    for (const auto& message : snapshot.unacked) journal_.SnapshotHas(name, message->sequence);
    const auto at = snapshots_.emplace(name, std::move(snapshot)).first;
    Save(name);
    return at->second.proto;
  };
  return With(*feed, create);
}

absl::StatusOr<pb::Snapshot> Broker::UpdateSnapshot(const pb::UpdateSnapshotRequest& request) {
  const pb::Snapshot& wanted = request.snapshot();
  if (auto s = CheckName(wanted.name(), "snapshots"); !s.ok()) return s;
  if (request.update_mask().paths().empty()) {
    return absl::InvalidArgumentError("update_mask must name at least one field");
  }
  const Change change(this);
  const auto found = snapshots_.find(wanted.name());
  if (found == snapshots_.end()) return NotFound(wanted.name());
  Snapshot& snapshot = found->second;
  pb::Snapshot changed = snapshot.proto;
  for (const std::string& path : request.update_mask().paths()) {
    if (path == "labels") {
      if (auto s = CheckLabels(wanted.labels()); !s.ok()) return s;
      *changed.mutable_labels() = wanted.labels();
    } else if (path == "expire_time") {
      if (auto s = CheckTime(wanted.expire_time(), "expire_time"); !s.ok()) return s;
      const absl::Time now = clock_();
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
  Save(wanted.name());
  return snapshot.proto;
}

absl::StatusOr<pb::Snapshot> Broker::GetSnapshot(const std::string& name) {
  if (auto s = CheckName(name, "snapshots"); !s.ok()) return s;
  const std::lock_guard<std::mutex> lock(mu_);
  const auto found = snapshots_.find(name);
  if (found == snapshots_.end()) return NotFound(name);
  return found->second.proto;
}

absl::StatusOr<pb::ListSnapshotsResponse> Broker::ListSnapshots(
    const pb::ListSnapshotsRequest& request) {
  if (auto s = CheckProject(request.project()); !s.ok()) return s;
  if (auto s = CheckPage(request.page_size(), request.page_token(), "snapshots"); !s.ok()) return s;
  pb::ListSnapshotsResponse response;
  const std::string prefix = absl::StrCat(request.project(), "/snapshots/");
  const std::lock_guard<std::mutex> lock(mu_);
  response.set_next_page_token(Page(
      snapshots_, request.page_size(), request.page_token(),
      [&](const std::string& name) { return absl::StartsWith(name, prefix); },
      [&](const auto& item) { *response.add_snapshots() = item.second.proto; }));
  return response;
}

absl::Status Broker::DeleteSnapshot(const std::string& name) {
  if (auto s = CheckName(name, "snapshots"); !s.ok()) return s;
  const Change change(this);
  if (snapshots_.erase(name) == 0) return NotFound(name);
  journal_.SnapshotDeleted(name);
  return absl::OkStatus();
}

}  // namespace postbox::emulator
