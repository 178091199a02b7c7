// IAM policies: they are kept with their resource, and an etag that is not the current one is
// refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "worker/emulator/broker/broker.h"
#include "worker/emulator/broker/resource_spec.h"
#include "worker/emulator/broker/test_names.h"

namespace postbox::emulator {
namespace {

namespace iam = google::iam::v1;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class PoliciesTest : public ::testing::Test {
 protected:
  PoliciesTest() {
    EXPECT_TRUE(CreateResources("p", {}, {"sub=topic"}, &broker_).ok());
    policy_.set_version(1);
    iam::Binding* binding = policy_.add_bindings();
    binding->set_role("roles/pubsub.publisher");
    binding->add_members("user:someone@example.com");
    binding->add_members("allUsers");
  }
  absl::StatusOr<iam::Policy> Get(const std::string& resource = kTopic) {
    iam::GetIamPolicyRequest request;
    request.set_resource(resource);
    return broker_.policies()->Get(request);
  }
  absl::StatusOr<iam::Policy> Set(const std::string& resource = kTopic) {
    iam::SetIamPolicyRequest request;
    request.set_resource(resource);
    *request.mutable_policy() = policy_;
    return broker_.policies()->Set(request);
  }
  absl::StatusOr<iam::TestIamPermissionsResponse> Test(const std::string& permission,
                                                       const std::string& resource = kTopic) {
    iam::TestIamPermissionsRequest request;
    request.set_resource(resource);
    request.add_permissions(permission);
    return broker_.policies()->Test(request);
  }
  void ExpectRefused(absl::StatusCode code, const std::string& text) {
    const absl::Status status = Set().status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }

  iam::Policy policy_;
  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  Broker broker_{[this] { return now_; }, BrokerOptions{}};
};

TEST_F(PoliciesTest, APolicyBelongsToItsResourceAndGoesWithIt) {
  const std::string subscription = "projects/p/subscriptions/sub";
  EXPECT_THAT(Get()->bindings(), IsEmpty());
  ASSERT_TRUE(Set().ok());
  EXPECT_EQ(Get()->bindings(0).members_size(), 2);
  EXPECT_THAT(Get(subscription)->bindings(), IsEmpty());
  ASSERT_TRUE(Set(subscription).ok());
  EXPECT_EQ(Get(subscription)->bindings_size(), 1);
  google::pubsub::v1::CreateSnapshotRequest snapshot;
  snapshot.set_name("projects/p/snapshots/snap");
  snapshot.set_subscription(subscription);
  ASSERT_TRUE(broker_.snapshots()->Create(snapshot).ok());
  ASSERT_TRUE(Set(snapshot.name()).ok());
  EXPECT_EQ(Get(snapshot.name())->bindings_size(), 1);
  ASSERT_TRUE(broker_.topics()->Delete(kTopic).ok());
  EXPECT_EQ(Get().status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Set().status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(CreateResources("p", {"topic"}, {}, &broker_).ok());
  EXPECT_THAT(Get()->bindings(), IsEmpty());
}

TEST_F(PoliciesTest, AChangeOfAnOlderPolicyIsAborted) {
  const std::string first = Get()->etag();
  EXPECT_FALSE(first.empty());
  policy_.set_etag(first);
  const std::string second = Set()->etag();
  EXPECT_NE(second, first);
  ExpectRefused(absl::StatusCode::kAborted, "etag");
  EXPECT_EQ(Get()->etag(), second);
  policy_.set_etag(second);
  EXPECT_TRUE(Set().ok());
  policy_.clear_etag();  // whatever is there is replaced
  EXPECT_TRUE(Set().ok());
}

TEST_F(PoliciesTest, APolicyIsChecked) {
  policy_.mutable_bindings(0)->set_members(1, "someone@example.com");
  ExpectRefused(absl::StatusCode::kInvalidArgument, "user:name@example.com");
  policy_.mutable_bindings(0)->set_members(1, "domain:example.com");
  policy_.mutable_bindings(0)->set_role("publisher");
  ExpectRefused(absl::StatusCode::kInvalidArgument, "roles/");
  policy_.mutable_bindings(0)->set_role("projects/p/roles/publisher");
  policy_.set_version(2);
  ExpectRefused(absl::StatusCode::kInvalidArgument, "version 0, 1 or 3");
  policy_.set_version(1);
  policy_.mutable_bindings(0)->mutable_condition()->set_expression("true");
  ExpectRefused(absl::StatusCode::kInvalidArgument, "version 3");
  policy_.set_version(3);
  EXPECT_TRUE(Set().ok());
  policy_.add_audit_configs();
  ExpectRefused(absl::StatusCode::kUnimplemented, "audit_configs");
  policy_.clear_audit_configs();
  for (int i = 0; i < 1499; ++i) policy_.mutable_bindings(0)->add_members("allUsers");
  ExpectRefused(absl::StatusCode::kInvalidArgument, "1501 members, at most 1500");
  EXPECT_EQ(Get("topic").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(PoliciesTest, EverybodyHasEachPermissionOfWhatExists) {
  EXPECT_THAT(Test("pubsub.topics.publish")->permissions(), ElementsAre("pubsub.topics.publish"));
  EXPECT_THAT(Test("pubsub.topics.publish", "projects/p/topics/none")->permissions(), IsEmpty());
  EXPECT_EQ(Test("pubsub.topics.*").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Test("storage.objects.get").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace postbox::emulator
