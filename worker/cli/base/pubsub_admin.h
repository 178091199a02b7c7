// Single calls of Pub/Sub, each with a deadline: what the subcommands of an operator need.
#ifndef POSTBOX_WORKER_CLI_BASE_PUBSUB_ADMIN_H_
#define POSTBOX_WORKER_CLI_BASE_PUBSUB_ADMIN_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "google/iam/v1/iam_policy.grpc.pb.h"
#include "google/pubsub/v1/pubsub.grpc.pb.h"
#include "google/pubsub/v1/schema.grpc.pb.h"
#include "proto/rules/endpoint.h"
#include "worker/pubsub/auth/token_source.h"

namespace postbox::cli {

namespace pb = google::pubsub::v1;
namespace iam = google::iam::v1;

class PubSubAdmin {
 public:
  static constexpr std::chrono::seconds kDeadline{10};

  // Finds credentials and has a token for them, and does not connect. On failure returns null and
  // puts the reason into `error`.
  static std::unique_ptr<PubSubAdmin> Open(const pubsub::Endpoint& endpoint,
                                           const std::string& quota_project, std::string* error);

  // Connects, TLS included, within kDeadline. It asks for a topic of this project, which need not
  // be there.
  grpc::Status Connect(const std::string& project);

  grpc::Status GetTopic(const std::string& name, pb::Topic* topic);
  grpc::Status GetSubscription(const std::string& name, pb::Subscription* subscription);
  // Which of the permissions on the topic or subscription are held.
  grpc::Status TestPermissions(const std::string& resource,
                               const std::vector<std::string>& permissions,
                               std::vector<std::string>* held);

  // For other calls: the stubs, and what a call of them needs, its deadline and its headers.
  // `field`=`value` names the resource.
  pb::Publisher::Stub* publisher() const { return publisher_.get(); }
  pb::Subscriber::Stub* subscriber() const { return subscriber_.get(); }
  pb::SchemaService::Stub* schemas() const { return schemas_.get(); }
  iam::IAMPolicy::Stub* policies() const { return policies_.get(); }
  void Prepare(grpc::ClientContext* context, std::string_view field, const std::string& value,
               std::chrono::seconds deadline = kDeadline) const;
  // The time at which all calls must be over, however many there are.
  void SetEnd(std::chrono::system_clock::time_point end) { end_ = end; }

 private:
  PubSubAdmin(std::shared_ptr<grpc::Channel> channel, std::unique_ptr<pubsub::TokenSource> tokens,
              std::string quota_project);

  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<pubsub::TokenSource> tokens_;  // null for plain text
  const std::string quota_project_;
  std::chrono::system_clock::time_point end_ = std::chrono::system_clock::time_point::max();
  const std::unique_ptr<pb::Publisher::Stub> publisher_;
  const std::unique_ptr<pb::Subscriber::Stub> subscriber_;
  const std::unique_ptr<pb::SchemaService::Stub> schemas_;
  const std::unique_ptr<iam::IAMPolicy::Stub> policies_;
};

// "NOT_FOUND: Topic not found"
std::string StatusText(const grpc::Status& status);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_BASE_PUBSUB_ADMIN_H_
