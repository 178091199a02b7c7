// The checks of names, sizes and ranges that do not depend on any state. Every function returns OK
// or INVALID_ARGUMENT with a message that names the limit. For features that the emulator does not
// have it returns UNIMPLEMENTED.
#ifndef POSTBOX_WORKER_EMULATOR_RULES_VALIDATION_H_
#define POSTBOX_WORKER_EMULATOR_RULES_VALIDATION_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/pubsub/v1/pubsub.pb.h"

namespace postbox::emulator {

// `name` must be projects/PROJECT/COLLECTION/ID; COLLECTION is topics, subscriptions,
// snapshots or schemas.
absl::Status CheckName(absl::string_view name, absl::string_view collection);
// `name` must be projects/PROJECT.
absl::Status CheckProject(absl::string_view name);

// `what` names the field of the request.
absl::Status CheckTime(const google::protobuf::Timestamp& time, absl::string_view what);

absl::Status CheckPublish(const google::pubsub::v1::PublishRequest& request);

absl::Status CheckTopic(const google::pubsub::v1::Topic& topic);

// Checks a whole subscription, after SetDefaults has set its defaults.
absl::Status CheckSubscription(const google::pubsub::v1::Subscription& subscription);
void SetDefaults(google::pubsub::v1::Subscription* subscription);

absl::Status CheckAcknowledge(const google::pubsub::v1::AcknowledgeRequest& request);
absl::Status CheckModifyAckDeadline(const google::pubsub::v1::ModifyAckDeadlineRequest& request);
absl::Status CheckPull(const google::pubsub::v1::PullRequest& request);
absl::Status CheckStreamingPull(const google::pubsub::v1::StreamingPullRequest& request,
                                bool first);

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_RULES_VALIDATION_H_
