#include "worker/emulator/subscriber_service.h"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/clock.h"
#include "worker/emulator/respond.h"
#include "worker/emulator/rules/status.h"
#include "worker/emulator/streaming_pull.h"

namespace postbox::emulator {

namespace pb = google::pubsub::v1;

namespace {

// How long a Pull waits for its first message, if its deadline allows it.
constexpr absl::Duration kPullWait = absl::Seconds(10);

// A Pull that found no message and waits for one.
class PullWaiter final : public Listener {
 public:
  void Wake() override {
    const std::lock_guard<std::mutex> lock(mu_);
    woken_ = true;
    waking_.notify_all();
  }
  bool Wait(absl::Duration duration) {
    std::unique_lock<std::mutex> lock(mu_);
    return waking_.wait_for(lock, absl::ToChronoNanoseconds(duration), [&] { return woken_; });
  }

 private:
  std::mutex mu_;
  std::condition_variable waking_;
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
};

// ACK_ERROR: removes the ack ids that are to fail (every second one, or all) from `ids` and returns
// them.
std::vector<std::string> TakeFailing(const Fault& fault,
                                     google::protobuf::RepeatedPtrField<std::string>* ids) {
  google::protobuf::RepeatedPtrField<std::string> kept;
  std::vector<std::string> failing;
  for (int i = 0; i < ids->size(); ++i) {
    if (fault.partial() && i % 2 == 0) {
      *kept.Add() = ids->Get(i);
    } else {
      failing.push_back(ids->Get(i));
    }
  }
  ids->Swap(&kept);
  return failing;
}

// Runs an acknowledgement, under an ACK_ERROR fault if there is one. Then some ids fail with the
// ErrorInfo of the fault and without effect; the others are passed on.
template <class Request, class Action>
absl::Status AckUnderFaults(Faults* faults, const char* rpc, const Request& request,
                            Action action) {
  const std::optional<Fault> fault = faults->Fire(
      rpc, {Fault::ACK_ERROR}, [](const Fault& rule) { return !AsksForMessage(rule); });
  if (!fault) return action(request);
  Request rest = request;
  const std::vector<std::string> failing = TakeFailing(*fault, rest.mutable_ack_ids());
  AckFailures failures;
  if (!rest.ack_ids().empty()) {
    const absl::Status status = action(rest);
    failures = GetAckFailures(status);
    if (!status.ok() && failures.empty()) return status;
  }
  const std::string& what =
      fault->error_info().empty() ? "TRANSIENT_FAILURE_SERVICE_UNAVAILABLE" : fault->error_info();
  for (const std::string& id : failing) failures.emplace_back(id, what);
  return AckFailureStatus(failures);
}

}  // namespace

grpc::Status SubscriberService::CreateSubscription(grpc::ServerContext* context,
                                                   const pb::Subscription* request,
                                                   pb::Subscription* response) {
  return gate_->Run(context, "CreateSubscription", *request,
                    [&] { return Respond(broker_->subscriptions()->Create(*request), response); });
}

grpc::Status SubscriberService::GetSubscription(grpc::ServerContext* context,
                                                const pb::GetSubscriptionRequest* request,
                                                pb::Subscription* response) {
  return gate_->Run(context, "GetSubscription", *request, [&] {
    return Respond(broker_->subscriptions()->Get(request->subscription()), response);
  });
}

grpc::Status SubscriberService::UpdateSubscription(grpc::ServerContext* context,
                                                   const pb::UpdateSubscriptionRequest* request,
                                                   pb::Subscription* response) {
  return gate_->Run(context, "UpdateSubscription", *request,
                    [&] { return Respond(broker_->subscriptions()->Update(*request), response); });
}

grpc::Status SubscriberService::ListSubscriptions(grpc::ServerContext* context,
                                                  const pb::ListSubscriptionsRequest* request,
                                                  pb::ListSubscriptionsResponse* response) {
  return gate_->Run(context, "ListSubscriptions", *request,
                    [&] { return Respond(broker_->subscriptions()->List(*request), response); });
}

grpc::Status SubscriberService::DeleteSubscription(grpc::ServerContext* context,
                                                   const pb::DeleteSubscriptionRequest* request,
                                                   google::protobuf::Empty* /*response*/) {
  return gate_->Run(context, "DeleteSubscription", *request,
                    [&] { return broker_->subscriptions()->Delete(request->subscription()); });
}

grpc::Status SubscriberService::ModifyAckDeadline(grpc::ServerContext* context,
                                                  const pb::ModifyAckDeadlineRequest* request,
                                                  google::protobuf::Empty* /*response*/) {
  return gate_->Run(context, "ModifyAckDeadline", *request, [&] {
    return AckUnderFaults(gate_->faults(), "ModifyAckDeadline", *request,
                          [&](const pb::ModifyAckDeadlineRequest& changed) {
                            return broker_->pulling()->ModifyAckDeadline(changed);
                          });
  });
}

grpc::Status SubscriberService::Acknowledge(grpc::ServerContext* context,
                                            const pb::AcknowledgeRequest* request,
                                            google::protobuf::Empty* /*response*/) {
  return gate_->Run(context, "Acknowledge", *request, [&] {
    return AckUnderFaults(gate_->faults(), "Acknowledge", *request,
                          [&](const pb::AcknowledgeRequest& changed) {
                            return broker_->pulling()->Acknowledge(changed);
                          });
  });
}

grpc::Status SubscriberService::Pull(grpc::ServerContext* context, const pb::PullRequest* request,
                                     pb::PullResponse* response) {
  return gate_->Run(context, "Pull", *request, [&] {
    broker_->DeliverAccepted();
    return PullOrWait(context, *request, response);
  });
}

absl::Status SubscriberService::PullOrWait(grpc::ServerContext* context,
                                           const pb::PullRequest& request,
                                           pb::PullResponse* response) {
  // The empty answer is sent a little before the caller's deadline, so that the call does not end
  // with DEADLINE_EXCEEDED.
  const absl::Time end = std::min(absl::Now() + kPullWait,
                                  absl::FromChrono(context->deadline()) - absl::Milliseconds(200));
  const auto over = [&] {
    return gate_->stopping() || context->IsCancelled() || absl::Now() >= end;
  };
  for (;;) {
    auto waiter = std::make_shared<PullWaiter>();
    auto deliveries = broker_->pulling()->Pull(request, waiter);
    if (!deliveries.ok()) return deliveries.status();
    if (!deliveries->empty() || request.return_immediately() || over()) {
      AddDeliveries(*deliveries, response);
      return absl::OkStatus();
    }
    while (!waiter->Wait(absl::Milliseconds(100))) {
      if (over()) return absl::OkStatus();
    }
  }
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* SubscriberService::StreamingPull(
    grpc::CallbackServerContext* context) {
  return StartStreamingPull(broker_, gate_, context);
}

grpc::Status SubscriberService::ModifyPushConfig(grpc::ServerContext* context,
                                                 const pb::ModifyPushConfigRequest* request,
                                                 google::protobuf::Empty* /*response*/) {
  return gate_->Run(context, "ModifyPushConfig", *request,
                    [&] { return broker_->subscriptions()->ModifyPushConfig(*request); });
}

grpc::Status SubscriberService::UpdateSnapshot(grpc::ServerContext* context,
                                               const pb::UpdateSnapshotRequest* request,
                                               pb::Snapshot* response) {
  return gate_->Run(context, "UpdateSnapshot", *request,
                    [&] { return Respond(broker_->snapshots()->Update(*request), response); });
}

grpc::Status SubscriberService::GetSnapshot(grpc::ServerContext* context,
                                            const pb::GetSnapshotRequest* request,
                                            pb::Snapshot* response) {
  return gate_->Run(context, "GetSnapshot", *request, [&] {
    return Respond(broker_->snapshots()->Get(request->snapshot()), response);
  });
}

grpc::Status SubscriberService::ListSnapshots(grpc::ServerContext* context,
                                              const pb::ListSnapshotsRequest* request,
                                              pb::ListSnapshotsResponse* response) {
  return gate_->Run(context, "ListSnapshots", *request,
                    [&] { return Respond(broker_->snapshots()->List(*request), response); });
}

grpc::Status SubscriberService::CreateSnapshot(grpc::ServerContext* context,
                                               const pb::CreateSnapshotRequest* request,
                                               pb::Snapshot* response) {
  return gate_->Run(context, "CreateSnapshot", *request,
                    [&] { return Respond(broker_->snapshots()->Create(*request), response); });
}

grpc::Status SubscriberService::DeleteSnapshot(grpc::ServerContext* context,
                                               const pb::DeleteSnapshotRequest* request,
                                               google::protobuf::Empty* /*response*/) {
  return gate_->Run(context, "DeleteSnapshot", *request,
                    [&] { return broker_->snapshots()->Delete(request->snapshot()); });
}

grpc::Status SubscriberService::Seek(grpc::ServerContext* context, const pb::SeekRequest* request,
                                     pb::SeekResponse* /*response*/) {
  return gate_->Run(context, "Seek", *request,
                    [&] { return broker_->snapshots()->Seek(*request); });
}

}  // namespace postbox::emulator
