// Snapshots, and seeks to them and to a time. Errors are those of the service.
#ifndef POSTBOX_WORKER_EMULATOR_BROKER_SNAPSHOT_CALLS_H_
#define POSTBOX_WORKER_EMULATOR_BROKER_SNAPSHOT_CALLS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/pubsub/v1/pubsub.pb.h"
#include "worker/emulator/broker/guarded_state.h"

namespace postbox::emulator {

class SnapshotCalls {
 public:
  explicit SnapshotCalls(GuardedState* state) : state_(state) {}

  absl::Status Seek(const google::pubsub::v1::SeekRequest& request);
  absl::StatusOr<google::pubsub::v1::Snapshot> Create(
      const google::pubsub::v1::CreateSnapshotRequest& request);
  absl::StatusOr<google::pubsub::v1::Snapshot> Get(const std::string& name);
  absl::StatusOr<google::pubsub::v1::Snapshot> Update(
      const google::pubsub::v1::UpdateSnapshotRequest& request);
  absl::StatusOr<google::pubsub::v1::ListSnapshotsResponse> List(
      const google::pubsub::v1::ListSnapshotsRequest& request);
  absl::Status Delete(const std::string& name);

 private:
  GuardedState* const state_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_BROKER_SNAPSHOT_CALLS_H_
