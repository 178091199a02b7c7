#include "worker/emulator/auth/access.h"

#include <gtest/gtest.h>

#include "google/pubsub/v1/pubsub.pb.h"

namespace postbox::emulator {
namespace {

namespace pb = google::pubsub::v1;

google::iam::v1::Policy PolicyOf(const std::string& role, const std::string& member) {
  google::iam::v1::Policy policy;
  auto* binding = policy.add_bindings();
  binding->set_role(role);
  binding->add_members(member);
  return policy;
}

TEST(AccessTest, ACallNeedsAPermissionOnTheResourceThatItNames) {
  pb::PublishRequest publish;
  publish.set_topic("projects/p/topics/t");
  EXPECT_EQ(NeedOf("Publish", publish).permission, "pubsub.topics.publish");
  EXPECT_EQ(NeedOf("Publish", publish).resource, "projects/p/topics/t");
  pb::UpdateSubscriptionRequest update;
  update.mutable_subscription()->set_name("projects/p/subscriptions/s");
  EXPECT_EQ(NeedOf("UpdateSubscription", update).resource, "projects/p/subscriptions/s");
  google::iam::v1::SetIamPolicyRequest set;
  set.set_resource("projects/p/snapshots/s");
  EXPECT_EQ(NeedOf("SetIamPolicy", set).permission, "pubsub.snapshots.setIamPolicy");
}

TEST(AccessTest, WhatIsOfNoResourceIsForAdministratorsOnly) {
  EXPECT_EQ(NeedOf("CreateTopic", pb::Topic()).resource, "");
  EXPECT_NE(NeedOf("CreateTopic", pb::Topic()).permission, "");
  EXPECT_EQ(NeedOf("TestIamPermissions", pb::Topic()).permission, "");
}

TEST(AccessTest, ARoleGivesItsPermissionsAndNoOthers) {
  const auto allows = [](const char* role, const char* permission) {
    return PolicyAllows(PolicyOf(role, "user:ann@example.com"), "ann@example.com", permission);
  };
  EXPECT_TRUE(allows("roles/pubsub.publisher", "pubsub.topics.publish"));
  EXPECT_FALSE(allows("roles/pubsub.publisher", "pubsub.topics.get"));
  EXPECT_TRUE(allows("roles/pubsub.subscriber", "pubsub.subscriptions.consume"));
  EXPECT_FALSE(allows("roles/pubsub.subscriber", "pubsub.subscriptions.get"));
  EXPECT_TRUE(allows("roles/pubsub.viewer", "pubsub.subscriptions.get"));
  EXPECT_FALSE(allows("roles/pubsub.viewer", "pubsub.subscriptions.consume"));
  EXPECT_TRUE(allows("roles/pubsub.editor", "pubsub.topics.delete"));
  EXPECT_FALSE(allows("roles/pubsub.editor", "pubsub.topics.setIamPolicy"));
  EXPECT_TRUE(allows("roles/pubsub.admin", "pubsub.topics.setIamPolicy"));
  EXPECT_FALSE(allows("projects/p/roles/own", "pubsub.topics.publish"));
}

TEST(AccessTest, AMemberIsAnAccountAPrincipalOrEverybody) {
  const auto allows = [](const std::string& member, const char* caller) {
    return PolicyAllows(PolicyOf("roles/pubsub.publisher", member), caller,
                        "pubsub.topics.publish");
  };
  EXPECT_TRUE(allows("serviceAccount:sa@p", "sa@p"));
  EXPECT_FALSE(allows("serviceAccount:sa@p", "other@p"));
  EXPECT_FALSE(allows("group:sa@p", "sa@p"));
  EXPECT_FALSE(allows("deleted:serviceAccount:sa@p", "sa@p"));
  EXPECT_TRUE(allows("principal://iam.googleapis.com/x", "principal://iam.googleapis.com/x"));
  EXPECT_TRUE(allows("allUsers", "sa@p"));
}

TEST(AccessTest, ABindingWithAConditionGivesNothing) {
  auto policy = PolicyOf("roles/pubsub.publisher", "allUsers");
  policy.mutable_bindings(0)->mutable_condition()->set_expression("true");
  EXPECT_FALSE(PolicyAllows(policy, "sa@p", "pubsub.topics.publish"));
}

}  // namespace
}  // namespace postbox::emulator
