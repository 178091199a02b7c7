#include "worker/emulator/publisher_service.h"

#include <algorithm>
#include <utility>

#include "worker/emulator/respond.h"

namespace postbox::emulator {

namespace pb = google::pubsub::v1;

grpc::Status PublisherService::CreateTopic(grpc::ServerContext* context, const pb::Topic* request,
                                           pb::Topic* response) {
  return gate_->Run(context, "CreateTopic", *request,
                    [&] { return Respond(broker_->topics()->Create(*request), response); });
}

grpc::Status PublisherService::UpdateTopic(grpc::ServerContext* context,
                                           const pb::UpdateTopicRequest* request,
                                           pb::Topic* response) {
  return gate_->Run(context, "UpdateTopic", *request,
                    [&] { return Respond(broker_->topics()->Update(*request), response); });
}

grpc::Status PublisherService::Publish(grpc::ServerContext* context,
                                       const pb::PublishRequest* request,
                                       pb::PublishResponse* response) {
  const auto matches = [request](const Fault& fault) {
    if (!AsksForMessage(fault)) return true;
    return std::any_of(
        request->messages().begin(), request->messages().end(),
        [&fault](const pb::PubsubMessage& message) { return Matches(fault, message); });
  };
  return gate_->Run(
      context, "Publish", *request, matches, [&](bool answer_withheld) -> absl::Status {
        if (answer_withheld) return Respond(broker_->publishing()->Publish(*request), response);
        auto accepted = broker_->publishing()->Accept(*request);
        if (!accepted.ok()) return accepted.status();
        *response = std::move(accepted->response);
        answer_first_->Then(context, [broker = broker_, messages = std::move(accepted->messages)] {
          broker->publishing()->Deliver(messages);
        });
        return absl::OkStatus();
      });
}

grpc::Status PublisherService::GetTopic(grpc::ServerContext* context,
                                        const pb::GetTopicRequest* request, pb::Topic* response) {
  return gate_->Run(context, "GetTopic", *request,
                    [&] { return Respond(broker_->topics()->Get(request->topic()), response); });
}

grpc::Status PublisherService::ListTopics(grpc::ServerContext* context,
                                          const pb::ListTopicsRequest* request,
                                          pb::ListTopicsResponse* response) {
  return gate_->Run(context, "ListTopics", *request,
                    [&] { return Respond(broker_->topics()->List(*request), response); });
}

grpc::Status PublisherService::ListTopicSubscriptions(
    grpc::ServerContext* context, const pb::ListTopicSubscriptionsRequest* request,
    pb::ListTopicSubscriptionsResponse* response) {
  return gate_->Run(context, "ListTopicSubscriptions", *request, [&] {
    return Respond(broker_->topics()->ListSubscriptions(*request), response);
  });
}

grpc::Status PublisherService::ListTopicSnapshots(grpc::ServerContext* context,
                                                  const pb::ListTopicSnapshotsRequest* request,
                                                  pb::ListTopicSnapshotsResponse* response) {
  return gate_->Run(context, "ListTopicSnapshots", *request,
                    [&] { return Respond(broker_->topics()->ListSnapshots(*request), response); });
}

grpc::Status PublisherService::DeleteTopic(grpc::ServerContext* context,
                                           const pb::DeleteTopicRequest* request,
                                           google::protobuf::Empty* /*response*/) {
  return gate_->Run(context, "DeleteTopic", *request,
                    [&] { return broker_->topics()->Delete(request->topic()); });
}

grpc::Status PublisherService::DetachSubscription(grpc::ServerContext* context,
                                                  const pb::DetachSubscriptionRequest* request,
                                                  pb::DetachSubscriptionResponse* /*response*/) {
  return gate_->Run(context, "DetachSubscription", *request,
                    [&] { return broker_->subscriptions()->Detach(request->subscription()); });
}

}  // namespace postbox::emulator
