// Publishing to a topic. Errors are those of the service.
#ifndef POSTBOX_WORKER_EMULATOR_BROKER_PUBLISHING_H_
#define POSTBOX_WORKER_EMULATOR_BROKER_PUBLISHING_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/pubsub/v1/pubsub.pb.h"
#include "worker/emulator/broker/guarded_state.h"
#include "worker/emulator/broker/schemas.h"

namespace postbox::emulator {

class Publishing {
 public:
  Publishing(GuardedState* state, Schemas* schemas) : state_(state), schemas_(schemas) {}

  struct Accepted {
    google::pubsub::v1::PublishResponse response;
    std::shared_ptr<Undelivered> messages;
  };

  absl::StatusOr<google::pubsub::v1::PublishResponse> Publish(
      const google::pubsub::v1::PublishRequest& request);
  // Publish() in two steps, so that the publisher can be answered before delivery:
  // Accept() gives the messages their ids and their place, Deliver() delivers them. Messages of a
  // topic are delivered in the order in which they were accepted. If Deliver() is not called within
  // a second, Broker::Tick() does it.
  absl::StatusOr<Accepted> Accept(const google::pubsub::v1::PublishRequest& request);
  void Deliver(const std::shared_ptr<Undelivered>& messages);

 private:
  // Accept(), once the messages are made.
  static absl::StatusOr<Accepted> Take(const google::pubsub::v1::PublishRequest& request,
                                       TopicState* topic,
                                       std::vector<std::shared_ptr<StoredMessage>> messages,
                                       BrokerState* state);

  GuardedState* const state_;
  Schemas* const schemas_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_BROKER_PUBLISHING_H_
