#include "worker/emulator/broker/pulling.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "worker/emulator/rules/status.h"
#include "worker/emulator/rules/validation.h"
#include "worker/emulator/subscription/ack_id.h"

namespace postbox::emulator {

namespace pb = google::pubsub::v1;

namespace {

AckFailures FailuresOf(const AckOutcome& result) {
  AckFailures failures;
  for (const std::string& id : result.stale) failures.emplace_back(id, kInvalidAckId);
  for (const std::string& id : result.unordered) failures.emplace_back(id, kUnorderedAckId);
  return failures;
}

template <class Ids>
absl::Status CheckForm(const Ids& ids) {
  AckId parsed;
  for (const absl::string_view id : ids) {
    if (!ParseAckId(id, &parsed)) {
      return absl::InvalidArgumentError(
          absl::StrCat("invalid ack id passed to the service (ack_id=", id, ")"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

// ---- unary calls ----

absl::StatusOr<std::vector<LeasedMessage>> Pulling::Pull(const pb::PullRequest& request,
                                                         const std::shared_ptr<Listener>& waiter) {
  if (auto s = CheckPull(request); !s.ok()) return s;
  const FeedChange feed(state_, request.subscription());
  if (!feed.status().ok()) return feed.status();
  if (auto s = feed.CheckAttached(); !s.ok()) return s;
  std::vector<LeasedMessage> deliveries = feed->Pull(request.max_messages(), feed.now());
  if (deliveries.empty() && waiter != nullptr) feed.feed()->pulls.push_back(waiter);
  return deliveries;
}

absl::Status Pulling::Acknowledge(const pb::AcknowledgeRequest& request) {
  if (auto s = CheckAcknowledge(request); !s.ok()) return s;
  const std::vector<absl::string_view> ids(request.ack_ids().begin(), request.ack_ids().end());
  const FeedChange feed(state_, request.subscription());
  if (!feed.status().ok()) return feed.status();
  if (!feed->config().enable_exactly_once_delivery()) {
    if (auto s = CheckForm(ids); !s.ok()) return s;
  }
  return AckFailureStatus(FailuresOf(feed->Acknowledge(ids)));
}

absl::Status Pulling::ModifyAckDeadline(const pb::ModifyAckDeadlineRequest& request) {
  if (auto s = CheckModifyAckDeadline(request); !s.ok()) return s;
  std::vector<std::pair<absl::string_view, int>> changes;
  changes.reserve(static_cast<size_t>(request.ack_ids_size()));
  for (const std::string& id : request.ack_ids()) {
    changes.emplace_back(id, request.ack_deadline_seconds());
  }
  const FeedChange feed(state_, request.subscription());
  if (!feed.status().ok()) return feed.status();
  if (!feed->config().enable_exactly_once_delivery()) {
    if (auto s = CheckForm(request.ack_ids()); !s.ok()) return s;
  }
  return AckFailureStatus(FailuresOf(feed->ModifyAckDeadline(changes, feed.now())));
}

// ---- streams ----

absl::StatusOr<StreamHandle> Pulling::OpenStream(const pb::StreamingPullRequest& request,
                                                 std::shared_ptr<Listener> listener) {
  const BrokerAccess access(state_);
  const auto feed = access->resources.FindFeed(request.subscription());
  if (!feed.ok()) return feed.status();
  const FlowControl flow_control{request.max_outstanding_messages(),
                                 request.max_outstanding_bytes()};
  const StreamId id =
      (*feed)->state.OpenStream(flow_control, absl::Seconds(request.stream_ack_deadline_seconds()));
  (*feed)->streams.emplace(id, std::move(listener));
  return StreamHandle(state_, *feed, id);
}

void StreamHandle::Close() const {
  const FeedChange feed(state_, feed_);
  feed->CloseStream(id_, feed.broker()->options.release_on_disconnect);
  feed_->streams.erase(id_);
}

void StreamHandle::SetDeadline(int seconds) const {
  const BrokerAccess access(state_);
  feed_->state.SetStreamDeadline(id_, absl::Seconds(seconds));
}

absl::StatusOr<StreamBatch> StreamHandle::Take() const {
  const BrokerAccess access(state_);
  const pb::Subscription& config = feed_->state.config();
  if (feed_->deleted) return NotFound(config.name());
  if (config.detached()) return Detached(config.name());
  StreamBatch batch;
  batch.exactly_once = config.enable_exactly_once_delivery();
  batch.ordered = config.enable_message_ordering();
  batch.deliveries = feed_->state.Take(id_, access->clock());
  return batch;
}

void StreamHandle::GiveBack(const std::vector<LeasedMessage>& deliveries) const {
  const FeedChange feed(state_, feed_);
  feed->GiveBack(deliveries);
}

AckOutcome StreamHandle::Acknowledge(const std::vector<absl::string_view>& ids) const {
  const FeedChange feed(state_, feed_);
  return feed->Acknowledge(ids);
}

AckOutcome StreamHandle::ModifyAckDeadline(
    const std::vector<std::pair<absl::string_view, int>>& changes) const {
  const FeedChange feed(state_, feed_);
  return feed->ModifyAckDeadline(changes, feed.now());
}

}  // namespace postbox::emulator
