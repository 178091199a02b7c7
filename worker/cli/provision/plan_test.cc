#include "worker/cli/provision/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "worker/cli/provision/read_file.h"

namespace postbox::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kFile[] = R"(
project_number: '42'
schemas: [{name: order-event, type: avro, definition: '{"type": "string"}'}]
topics:
  - name: a.b.c
    labels: {team: x}
    schema: {name: order-event, encoding: json}
    publishers: ['user:p@example.com']
subscriptions:
  - name: a.b.c.d-e
    topic: a.b.c
    filter: 'attributes:x'
    subscribers: ['user:s@example.com']
)";

// A server on which the plan was carried out.
Actual After(const Desired& desired) {
  Actual actual;
  for (const auto& one : desired.schemas) actual.schemas[one.name()] = one;
  for (const auto& one : desired.topics) actual.topics[one.resource.name()] = one.resource;
  for (const auto& one : desired.subscriptions) {
    actual.subscriptions[one.resource.name()] = one.resource;
  }
  for (const Grant& grant : desired.grants) {
    iam::Binding* const binding = actual.policies[grant.resource].add_bindings();
    binding->set_role(grant.role);
    binding->add_members(grant.member);
  }
  return actual;
}

std::vector<std::string> Heads(const Plan& plan) {
  std::vector<std::string> heads;
  for (const Step& step : plan.steps) {
    const std::string text = StepText(step);
    heads.push_back(text.substr(0, text.find('\n')));
  }
  return heads;
}

pb::Subscription& Reader(Actual* actual) {
  return actual->subscriptions["projects/shop/subscriptions/a.b.c.d-e"];
}

TEST(ProvisionPlan, OnAnEmptyServerEverythingIsCreatedInTheOrderOfDependencies) {
  const Plan plan = MakePlan(ReadFile(kFile), {});
  EXPECT_THAT(plan.refusals, IsEmpty());
  EXPECT_THAT(
      Heads(plan),
      ElementsAre("+ schema projects/shop/schemas/order-event",
                  "+ topic projects/shop/topics/a.b.c", "+ topic projects/shop/topics/a.b.c.dlq",
                  "~ rights on projects/shop/topics/a.b.c",
                  "~ rights on projects/shop/topics/a.b.c.dlq",
                  "+ subscription projects/shop/subscriptions/a.b.c.d-e",
                  "+ subscription projects/shop/subscriptions/a.b.c.dlq-monitor",
                  "~ rights on projects/shop/subscriptions/a.b.c.d-e"));
}

TEST(ProvisionPlan, WhereAllIsThereNothingIsToBeDone) {
  const Desired desired = ReadFile(kFile);
  const Plan plan = MakePlan(desired, After(desired));
  EXPECT_THAT(plan.steps, IsEmpty());
  EXPECT_THAT(plan.refusals, IsEmpty());
}

TEST(ProvisionPlan, AnInterruptedRunIsCompletedFromEveryPoint) {
  const Desired desired = ReadFile(kFile);
  const Plan whole = MakePlan(desired, {});
  Actual actual;
  for (size_t done = 0; done <= whole.steps.size(); ++done) {
    EXPECT_EQ(MakePlan(desired, actual).steps.size(), whole.steps.size() - done);
    if (done == whole.steps.size()) break;
    const Step& step = whole.steps[done];
    if (const auto* schema = std::get_if<pb::Schema>(&step.wanted)) {
      actual.schemas[step.name] = *schema;
    } else if (const auto* topic = std::get_if<pb::Topic>(&step.wanted)) {
      actual.topics[step.name] = *topic;
    } else if (const auto* subscription = std::get_if<pb::Subscription>(&step.wanted)) {
      actual.subscriptions[step.name] = *subscription;
    } else {
      actual.policies[step.name] = After(desired).policies[step.name];
    }
  }
}

TEST(ProvisionPlan, AChangedFieldIsTheOnlyOneThatIsUpdated) {
  const Desired desired = ReadFile(kFile);
  Actual actual = After(desired);
  Reader(&actual).set_ack_deadline_seconds(10);
  actual.topics["projects/shop/topics/a.b.c"].mutable_labels()->clear();
  const Plan plan = MakePlan(desired, actual);
  ASSERT_EQ(plan.steps.size(), 2U);
  EXPECT_EQ(StepText(plan.steps[0]),
            "~ topic projects/shop/topics/a.b.c\n    labels: {} -> {team=x}\n");
  EXPECT_THAT(plan.steps[0].mask, ElementsAre("labels"));
  EXPECT_EQ(StepText(plan.steps[1]),
            "~ subscription projects/shop/subscriptions/a.b.c.d-e\n    ack_deadline: 10s -> 60s\n");
  EXPECT_THAT(plan.steps[1].mask, ElementsAre("ack_deadline_seconds"));
}

TEST(ProvisionPlan, WhatTheFileDoesNotMentionStaysAsItIs) {
  const Desired desired = ReadFile("topics: [{name: a.b.c}]\n");
  Actual actual = After(desired);
  auto& topic = actual.topics["projects/shop/topics/a.b.c"];
  (*topic.mutable_labels())["team"] = "somebody";
  topic.mutable_message_retention_duration()->set_seconds(600);
  topic.set_kms_key_name("k");
  EXPECT_THAT(MakePlan(desired, actual).steps, IsEmpty());
}

TEST(ProvisionPlan, WhatPubSubCannotChangeIsRefusedWithAWayOut) {
  const Desired desired = ReadFile(kFile);
  struct {
    const char* key;
    void (*change)(pb::Subscription*);
  } const cases[] = {
      {"filter cannot be changed: it is \"\"", [](pb::Subscription* one) { one->clear_filter(); }},
      {"ordering cannot be changed",
       [](pb::Subscription* one) { one->set_enable_message_ordering(false); }},
      {"topic cannot be changed",
       [](pb::Subscription* one) { one->set_topic("projects/shop/topics/other"); }},
      {"topic cannot be changed: it is _deleted-topic_",
       [](pb::Subscription* one) { one->set_topic("_deleted-topic_"); }},
      {"it is detached", [](pb::Subscription* one) { one->set_detached(true); }},
      {"it pushes to http://x, and",
       [](pb::Subscription* one) {
         one->mutable_push_config()->set_push_endpoint("http://x?token=secret");
       }},
  };
  for (const auto& one : cases) {
    Actual actual = After(desired);
    one.change(&Reader(&actual));
    const Plan plan = MakePlan(desired, actual);
    ASSERT_EQ(plan.refusals.size(), 1U) << one.key;
    EXPECT_THAT(plan.refusals[0].reason, HasSubstr(one.key));
    EXPECT_NE(plan.refusals[0].remedy, "");
  }
  Actual actual = After(desired);
  actual.schemas["projects/shop/schemas/order-event"].set_type(pb::Schema::PROTOCOL_BUFFER);
  EXPECT_THAT(MakePlan(desired, actual).refusals[0].reason,
              HasSubstr("it is protocol_buffer, and the file says avro"));
}

TEST(ProvisionPlan, AnotherDefinitionBecomesARevisionAndAnotherLayoutOfItDoesNot) {
  const Desired desired = ReadFile(kFile);
  Actual actual = After(desired);
  auto& schema = actual.schemas["projects/shop/schemas/order-event"];
  schema.set_definition("{ \"type\":\n\"string\" }");
  EXPECT_THAT(MakePlan(desired, actual).steps, IsEmpty());
  schema.set_definition("{\"type\": \"int\"}");
  schema.set_revision_id("abcd");
  EXPECT_EQ(StepText(MakePlan(desired, actual).steps[0]),
            "~ schema projects/shop/schemas/order-event\n    definition: revision abcd -> a new "
            "revision\n");
}

TEST(ProvisionPlan, WhatIsNeitherInTheFileNorOnTheServerIsRefused) {
  const Desired desired = ReadFile(
      "topics: [{name: a.b.c, schema: {name: sss, encoding: json}}]\n"
      "subscriptions: [{name: x.y.z.d-e, topic: x.y.z, dead_letter: {topic: "
      "projects/other/topics/ddd}}]\n");
  const Plan plan = MakePlan(desired, {});
  ASSERT_EQ(plan.refusals.size(), 3U);
  EXPECT_THAT(plan.refusals[0].reason, HasSubstr("schema is projects/shop/schemas/sss"));
  EXPECT_THAT(plan.refusals[1].reason, HasSubstr("topic is projects/shop/topics/x.y.z"));
  EXPECT_THAT(plan.refusals[2].reason, HasSubstr("dead_letter.topic is projects/other/topics/ddd"));
}

TEST(ProvisionPlan, ARightUnderAConditionIsNotTheRight) {
  const Desired desired = ReadFile(kFile);
  Actual actual = After(desired);
  auto& policy = actual.policies["projects/shop/topics/a.b.c"];
  policy.mutable_bindings(0)->mutable_condition()->set_expression("false");
  EXPECT_EQ(StepText(MakePlan(desired, actual).steps[0]),
            "~ rights on projects/shop/topics/a.b.c\n    roles/pubsub.publisher: "
            "user:p@example.com\n");
}

TEST(ProvisionPlan, AServerWithoutSchemasOrPoliciesIsReportedForEachThingThatItLacks) {
  const Desired desired = ReadFile(kFile);
  Actual actual;
  actual.no_schemas = actual.no_policies = true;
  const Plan plan = MakePlan(desired, actual);
  EXPECT_THAT(plan.refusals, IsEmpty());
  EXPECT_EQ(plan.unsupported.size(), 6U);  // the schema, the topic's, and four rights
  EXPECT_THAT(
      Heads(plan),
      ElementsAre("+ topic projects/shop/topics/a.b.c", "+ topic projects/shop/topics/a.b.c.dlq",
                  "+ subscription projects/shop/subscriptions/a.b.c.d-e",
                  "+ subscription projects/shop/subscriptions/a.b.c.dlq-monitor"));
  EXPECT_FALSE(std::get<pb::Topic>(plan.steps[0].wanted).has_schema_settings());
}

}  // namespace
}  // namespace postbox::cli
