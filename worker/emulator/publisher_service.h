// google.pubsub.v1.Publisher over a Broker.
#ifndef POSTBOX_WORKER_EMULATOR_PUBLISHER_SERVICE_H_
#define POSTBOX_WORKER_EMULATOR_PUBLISHER_SERVICE_H_

#include "google/pubsub/v1/pubsub.grpc.pb.h"
#include "worker/emulator/answer_first.h"
#include "worker/emulator/broker/broker.h"
#include "worker/emulator/call_gate.h"

namespace postbox::emulator {

class PublisherService final : public google::pubsub::v1::Publisher::Service {
 public:
  PublisherService(Broker* broker, CallGate* gate, AnswerFirst* answer_first)
      : broker_(broker), gate_(gate), answer_first_(answer_first) {}

  grpc::Status CreateTopic(grpc::ServerContext* context, const google::pubsub::v1::Topic* request,
                           google::pubsub::v1::Topic* response) override;
  grpc::Status UpdateTopic(grpc::ServerContext* context,
                           const google::pubsub::v1::UpdateTopicRequest* request,
                           google::pubsub::v1::Topic* response) override;
  grpc::Status Publish(grpc::ServerContext* context,
                       const google::pubsub::v1::PublishRequest* request,
                       google::pubsub::v1::PublishResponse* response) override;
  grpc::Status GetTopic(grpc::ServerContext* context,
                        const google::pubsub::v1::GetTopicRequest* request,
                        google::pubsub::v1::Topic* response) override;
  grpc::Status ListTopics(grpc::ServerContext* context,
                          const google::pubsub::v1::ListTopicsRequest* request,
                          google::pubsub::v1::ListTopicsResponse* response) override;
  grpc::Status ListTopicSubscriptions(
      grpc::ServerContext* context,
      const google::pubsub::v1::ListTopicSubscriptionsRequest* request,
      google::pubsub::v1::ListTopicSubscriptionsResponse* response) override;
  grpc::Status ListTopicSnapshots(
      grpc::ServerContext* context, const google::pubsub::v1::ListTopicSnapshotsRequest* request,
      google::pubsub::v1::ListTopicSnapshotsResponse* response) override;
  grpc::Status DeleteTopic(grpc::ServerContext* context,
                           const google::pubsub::v1::DeleteTopicRequest* request,
                           google::protobuf::Empty* response) override;
  grpc::Status DetachSubscription(
      grpc::ServerContext* context, const google::pubsub::v1::DetachSubscriptionRequest* request,
      google::pubsub::v1::DetachSubscriptionResponse* response) override;

 private:
  Broker* const broker_;
  CallGate* const gate_;
  AnswerFirst* const answer_first_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_PUBLISHER_SERVICE_H_
