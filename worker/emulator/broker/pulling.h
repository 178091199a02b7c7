// Messages of subscriptions, by unary calls and on streams. Errors are those of the service.
#ifndef POSTBOX_WORKER_EMULATOR_BROKER_PULLING_H_
#define POSTBOX_WORKER_EMULATOR_BROKER_PULLING_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/pubsub/v1/pubsub.pb.h"
#include "worker/emulator/broker/guarded_state.h"
#include "worker/emulator/subscription/subscription.h"

namespace postbox::emulator {

struct StreamBatch {
  std::vector<LeasedMessage> deliveries;
  bool exactly_once = false;
  bool ordered = false;
};

// An open StreamingPull. It must be closed before the last copy of its handle is destroyed.
class StreamHandle {
 public:
  StreamHandle(GuardedState* state, std::shared_ptr<Feed> feed, StreamId id)
      : state_(state), feed_(std::move(feed)), id_(id) {}

  void Close() const;
  void SetDeadline(int seconds) const;
  // NOT_FOUND if the subscription was deleted, FAILED_PRECONDITION if it was detached.
  absl::StatusOr<StreamBatch> Take() const;
  void GiveBack(const std::vector<LeasedMessage>& deliveries) const;
  AckOutcome Acknowledge(const std::vector<absl::string_view>& ids) const;
  AckOutcome ModifyAckDeadline(const std::vector<std::pair<absl::string_view, int>>& changes) const;

 private:
  GuardedState* state_;
  std::shared_ptr<Feed> feed_;
  StreamId id_;
};

class Pulling {
 public:
  explicit Pulling(GuardedState* state) : state_(state) {}

  // Returns the messages that there are now. If there are none, `waiter` is woken once when that
  // has changed.
  absl::StatusOr<std::vector<LeasedMessage>> Pull(const google::pubsub::v1::PullRequest& request,
                                                  const std::shared_ptr<Listener>& waiter);
  absl::Status Acknowledge(const google::pubsub::v1::AcknowledgeRequest& request);
  absl::Status ModifyAckDeadline(const google::pubsub::v1::ModifyAckDeadlineRequest& request);

  // `listener` is woken whenever StreamHandle::Take() may return something. `request` is the first
  // one of the stream and must be checked.
  absl::StatusOr<StreamHandle> OpenStream(const google::pubsub::v1::StreamingPullRequest& request,
                                          std::shared_ptr<Listener> listener);

 private:
  GuardedState* const state_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_BROKER_PULLING_H_
