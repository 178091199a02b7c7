#include "extension/registry/registered_names.h"

#include "proto/rules/resource_name.h"

namespace postbox {
namespace {

void CheckResourceName(const std::string& problem, const std::string& unconventional,
                       const char* hint) {
  if (!problem.empty()) Throw(ERRCODE_INVALID_NAME, problem, "", hint);
  if (unconventional.empty()) return;
  WarnClient(unconventional, "Pub/Sub accepts the name, and so does Postbox.");
}

}  // namespace

void CheckRegisteredName(const char* kind, const std::string& name) {
  if (!name.empty() && name.size() < NAMEDATALEN) return;
  Throw(ERRCODE_INVALID_NAME, std::string("name of a ") + kind + " must have 1 to " +
                                  std::to_string(NAMEDATALEN - 1) + " bytes");
}

void ThrowUnknownName(const char* kind, const std::string& name) {
  Throw(ERRCODE_UNDEFINED_OBJECT, std::string(kind) + " \"" + name + "\" does not exist", "",
        "They are listed in postbox." + std::string(kind) + ".");
}

void CheckTopic(const std::string& topic) {
  CheckResourceName(pubsub::CheckTopicName(topic), pubsub::CheckTopicConvention(topic),
                    "Give a topic id, or its full name projects/PROJECT/topics/ID.");
}

void CheckSubscription(const std::string& subscription) {
  CheckResourceName(pubsub::CheckSubscriptionName(subscription),
                    pubsub::CheckSubscriptionConvention(subscription),
                    "Give a subscription id, or its full name projects/PROJECT/subscriptions/ID.");
}

void WarnClient(const std::string& message, const char* hint) {
  Pg([&] {
    ereport(WARNING_CLIENT_ONLY, (errcode(ERRCODE_WARNING), errmsg_internal("%s", message.c_str()),
                                  errhint("%s", hint)));
  });
}

}  // namespace postbox
