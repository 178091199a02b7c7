// google.pubsub.v1.Subscriber over a Broker. Unary calls use the synchronous API. StreamingPull
// uses the callback API, because the server cannot end a synchronous stream while it waits for a
// request.
#ifndef POSTBOX_WORKER_EMULATOR_SUBSCRIBER_SERVICE_H_
#define POSTBOX_WORKER_EMULATOR_SUBSCRIBER_SERVICE_H_

#include "google/pubsub/v1/pubsub.grpc.pb.h"
#include "worker/emulator/broker/broker.h"
#include "worker/emulator/call_gate.h"

namespace postbox::emulator {

class SubscriberService final
    : public google::pubsub::v1::Subscriber::WithRawCallbackMethod_StreamingPull<
          google::pubsub::v1::Subscriber::Service> {
 public:
  SubscriberService(Broker* broker, CallGate* gate) : broker_(broker), gate_(gate) {}

  grpc::Status CreateSubscription(grpc::ServerContext* context,
                                  const google::pubsub::v1::Subscription* request,
                                  google::pubsub::v1::Subscription* response) override;
  grpc::Status GetSubscription(grpc::ServerContext* context,
                               const google::pubsub::v1::GetSubscriptionRequest* request,
                               google::pubsub::v1::Subscription* response) override;
  grpc::Status UpdateSubscription(grpc::ServerContext* context,
                                  const google::pubsub::v1::UpdateSubscriptionRequest* request,
                                  google::pubsub::v1::Subscription* response) override;
  grpc::Status ListSubscriptions(grpc::ServerContext* context,
                                 const google::pubsub::v1::ListSubscriptionsRequest* request,
                                 google::pubsub::v1::ListSubscriptionsResponse* response) override;
  grpc::Status DeleteSubscription(grpc::ServerContext* context,
                                  const google::pubsub::v1::DeleteSubscriptionRequest* request,
                                  google::protobuf::Empty* response) override;
  grpc::Status ModifyAckDeadline(grpc::ServerContext* context,
                                 const google::pubsub::v1::ModifyAckDeadlineRequest* request,
                                 google::protobuf::Empty* response) override;
  grpc::Status Acknowledge(grpc::ServerContext* context,
                           const google::pubsub::v1::AcknowledgeRequest* request,
                           google::protobuf::Empty* response) override;
  grpc::Status Pull(grpc::ServerContext* context, const google::pubsub::v1::PullRequest* request,
                    google::pubsub::v1::PullResponse* response) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StreamingPull(
      grpc::CallbackServerContext* context) override;
  grpc::Status ModifyPushConfig(grpc::ServerContext* context,
                                const google::pubsub::v1::ModifyPushConfigRequest* request,
                                google::protobuf::Empty* response) override;
  grpc::Status UpdateSnapshot(grpc::ServerContext* context,
                              const google::pubsub::v1::UpdateSnapshotRequest* request,
                              google::pubsub::v1::Snapshot* response) override;
  grpc::Status GetSnapshot(grpc::ServerContext* context,
                           const google::pubsub::v1::GetSnapshotRequest* request,
                           google::pubsub::v1::Snapshot* response) override;
  grpc::Status ListSnapshots(grpc::ServerContext* context,
                             const google::pubsub::v1::ListSnapshotsRequest* request,
                             google::pubsub::v1::ListSnapshotsResponse* response) override;
  grpc::Status CreateSnapshot(grpc::ServerContext* context,
                              const google::pubsub::v1::CreateSnapshotRequest* request,
                              google::pubsub::v1::Snapshot* response) override;
  grpc::Status DeleteSnapshot(grpc::ServerContext* context,
                              const google::pubsub::v1::DeleteSnapshotRequest* request,
                              google::protobuf::Empty* response) override;
  grpc::Status Seek(grpc::ServerContext* context, const google::pubsub::v1::SeekRequest* request,
                    google::pubsub::v1::SeekResponse* response) override;

 private:
  absl::Status PullOrWait(grpc::ServerContext* context,
                          const google::pubsub::v1::PullRequest& request,
                          google::pubsub::v1::PullResponse* response);
  Broker* const broker_;
  CallGate* const gate_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_SUBSCRIBER_SERVICE_H_
