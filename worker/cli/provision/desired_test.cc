#include "worker/cli/provision/desired.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "worker/cli/provision/fields.h"

namespace postbox::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Outcome {
  Desired desired;
  std::vector<std::string> problems;
};

Outcome Read(const std::string& yaml, const std::string& project = "shop") {
  std::string error;
  const auto document = ParseDocument("f.yaml", yaml, &error);
  EXPECT_EQ(error, "");
  Problems problems("f.yaml");
  Outcome outcome{ReadDesired(*document, project, "", &problems), {}};
  outcome.problems = problems.lines();
  return outcome;
}

std::string All(const pb::Subscription& subscription) {
  std::string text;
  for (const auto& field : SubscriptionFields()) {
    text += std::string(field.key) + ": " + field.show(subscription) + "\n";
  }
  return text;
}

TEST(ProvisionDesired, ASubscriptionWithoutAWordHasTheDefaultsAndItsDeadLetterTopic) {
  const Outcome outcome = Read(
      "topics: [{name: shop.order.events}]\n"
      "subscriptions: [{name: shop.order.events.mail-sender, topic: shop.order.events}]\n");
  EXPECT_THAT(outcome.problems, IsEmpty());
  const Desired& desired = outcome.desired;
  ASSERT_EQ(desired.topics.size(), 2U);
  EXPECT_EQ(desired.topics[1].resource.name(), "projects/shop/topics/shop.order.events.dlq");
  ASSERT_EQ(desired.subscriptions.size(), 2U);
  EXPECT_EQ(All(desired.subscriptions[0].resource),
            "topic: projects/shop/topics/shop.order.events\nfilter: \"\"\nordering: true\n"
            "exactly_once: true\nack_deadline: 60s\nretention: 7d\nretain_acked: true\n"
            "retry: 10s to 600s\nexpiration: never\n"
            "dead_letter: projects/shop/topics/shop.order.events.dlq after 5 attempts\n"
            "labels: {}\n");
  EXPECT_EQ(desired.subscriptions[1].resource.name(),
            "projects/shop/subscriptions/shop.order.events.dlq-monitor");
  EXPECT_EQ(desired.subscriptions[1].resource.topic(),
            "projects/shop/topics/shop.order.events.dlq");
  EXPECT_FALSE(desired.subscriptions[1].resource.has_dead_letter_policy());
  ASSERT_EQ(desired.warnings.size(), 1U);
  EXPECT_THAT(desired.warnings[0], HasSubstr("project_number is missing"));
}

constexpr char kEveryKey[] = R"(
project: shop
project_number: '42'
schemas: [{name: order-event, type: avro, definition: '{"type": "string"}'}]
topics:
  - name: shop.order.events
    retention: 1d
    labels: {team: shop}
    kms_key: projects/p/locations/l/keyRings/r/cryptoKeys/k
    storage_regions: [europe-west1, europe-west4]
    enforce_in_transit: true
    schema: {name: order-event, encoding: binary, first_revision: ab12, last_revision: cd34}
    publishers: ['serviceAccount:shop@shop.iam.gserviceaccount.com']
subscriptions:
  - name: shop.order.events.mail-sender
    topic: shop.order.events
    ordering: false
    exactly_once: false
    filter: attributes.event_type = "order.created"
    ack_deadline: 30
    retention: 36h
    retain_acked: false
    retry: {minimum: 0, maximum: 20s}
    expiration: 31d
    dead_letter:
      {topic: shop.dead.letters, max_attempts: 7, subscription: shop.dead.letters.ops-reader}
    labels: {team: mail}
    subscribers: ['group:mail@example.com', allUsers]
)";

TEST(ProvisionDesired, EveryKeyIsTaken) {
  const Outcome outcome = Read(kEveryKey);
  EXPECT_THAT(outcome.problems, IsEmpty());
  const Desired& desired = outcome.desired;
  EXPECT_EQ(desired.schemas[0].name(), "projects/shop/schemas/order-event");
  std::string topic;
  for (const auto& field : TopicFields()) topic += field.show(desired.topics[0].resource) + "\n";
  EXPECT_EQ(topic,
            "1d\n{team=shop}\nprojects/p/locations/l/keyRings/r/cryptoKeys/k\n"
            "[europe-west1, europe-west4], enforced in transit\n"
            "projects/shop/schemas/order-event, binary, from ab12, to cd34\n");
  EXPECT_EQ(All(desired.subscriptions[0].resource),
            "topic: projects/shop/topics/shop.order.events\n"
            "filter: \"attributes.event_type = \\\"order.created\\\"\"\nordering: false\n"
            "exactly_once: false\nack_deadline: 30s\nretention: 36h\nretain_acked: false\n"
            "retry: 0s to 20s\nexpiration: 31d\n"
            "dead_letter: projects/shop/topics/shop.dead.letters after 7 attempts\n"
            "labels: {team=mail}\n");
  EXPECT_EQ(desired.subscriptions[1].resource.name(),
            "projects/shop/subscriptions/shop.dead.letters.ops-reader");
  const std::string agent = "serviceAccount:service-42@gcp-sa-pubsub.iam.gserviceaccount.com";
  const std::string subscription = "projects/shop/subscriptions/shop.order.events.mail-sender";
  const std::vector<Grant> grants = {
      {"projects/shop/topics/shop.order.events", kPublisherRole,
       "serviceAccount:shop@shop.iam.gserviceaccount.com"},
      {subscription, kSubscriberRole, "group:mail@example.com"},
      {subscription, kSubscriberRole, "allUsers"},
      {"projects/shop/topics/shop.dead.letters", kPublisherRole, agent},
      {subscription, kSubscriberRole, agent}};
  EXPECT_EQ(desired.grants, grants);
  EXPECT_THAT(desired.warnings, testing::Contains(HasSubstr("everyone on the internet")));
}

TEST(ProvisionDesired, WhatIsGivenForDeadLettersIsNotImpliedAgain) {
  const Outcome none =
      Read("subscriptions: [{name: a.b.c.d-e, topic: a.b.c, dead_letter: none}]\n");
  EXPECT_THAT(none.desired.topics, IsEmpty());
  EXPECT_FALSE(none.desired.subscriptions[0].resource.has_dead_letter_policy());
  const Outcome own = Read(
      "topics: [{name: a.b.c}, {name: a.b.c.dlq}]\n"
      "subscriptions: [{name: a.b.c.d-e, topic: a.b.c}, {name: a.b.c.dlq-x, topic: a.b.c.dlq}]\n");
  EXPECT_EQ(own.desired.topics.size(), 2U);
  EXPECT_EQ(own.desired.subscriptions.size(), 2U);
  EXPECT_FALSE(own.desired.subscriptions[1].resource.has_dead_letter_policy());
  const Outcome shared = Read(
      "subscriptions:\n- {name: a.b.c.d-e, topic: a.b.c}\n- {name: a.b.c.f-g, topic: a.b.c}\n"
      "- {name: a.b.c.h-i, topic: a.b.c, dead_letter: {subscription: none}}\n");
  EXPECT_EQ(shared.desired.topics.size(), 1U);
  EXPECT_EQ(shared.desired.subscriptions.size(), 4U);
  const Outcome foreign = Read(
      "subscriptions: [{name: a.b.c.d-e, topic: a.b.c, dead_letter: {topic: "
      "projects/other/topics/x.y.z}}]\n");
  EXPECT_THAT(foreign.desired.topics, IsEmpty());
  EXPECT_EQ(foreign.desired.subscriptions.size(), 1U);
}

TEST(ProvisionDesired, KeysOfATopicThatAreNotWrittenAreLeftAlone) {
  const Outcome outcome = Read(
      "topics: [{name: a.b.c}, {name: a.b.d, retention: none, labels: {}, storage_regions: [], "
      "schema: none}]\n");
  EXPECT_THAT(outcome.problems, IsEmpty());
  EXPECT_THAT(outcome.desired.topics[0].fields, IsEmpty());
  EXPECT_THAT(outcome.desired.topics[1].fields,
              testing::ElementsAre("message_retention_duration", "labels", "message_storage_policy",
                                   "schema_settings"));
  EXPECT_FALSE(outcome.desired.topics[1].resource.has_schema_settings());
}

TEST(ProvisionDesired, ANameAgainstTheConventionsIsAWarningWithTheBetterOne) {
  const Outcome outcome = Read(
      "topics: [{name: shop-order-events}]\n"
      "subscriptions: [{name: mail_sender, topic: shop-order-events, dead_letter: none}]\n");
  EXPECT_THAT(outcome.problems, IsEmpty());
  ASSERT_EQ(outcome.desired.warnings.size(), 2U);
  EXPECT_THAT(outcome.desired.warnings[0], HasSubstr("topics[0].name: "));
  EXPECT_THAT(outcome.desired.warnings[0], HasSubstr("better: shop.order.events"));
  EXPECT_THAT(outcome.desired.warnings[1], HasSubstr("better: shop.order.events.mail-sender"));
}

struct Wrong {
  const char* yaml;
  const char* expected;  // a part of the first problem
};

constexpr Wrong kWrongs[] = {
    {"[]", "f.yaml: a mapping of keys to values is needed here, and it is a list"},
    {"topics: 5", "topics: a list is needed here, and it is a number"},
    {"topics: [5]", "topics[0]: a mapping of keys to values is needed here"},
    {"topic: []", "unknown key \"topic\" (did you mean topics?)"},
    {"topics: [{}]", "topics[0].name: this key is needed"},
    {"topics: [{name: ab}]", "topics[0].name: topic id \"ab\" has 2 characters"},
    {"topics: [{name: goog.a.b}]", "\"goog\", which Pub/Sub reserves"},
    {"topics: [{name: projects/p/subscriptions/abc}]",
     "is not of the form projects/PROJECT/topics"},
    {"topics: [{name: a.b.c}, {name: projects/shop/topics/a.b.c}]",
     "topics[1].name: the name occurs twice"},
    {"topics: [{name: a.b.c, retention: 5m}]",
     "topics[0].retention: allowed is a time from 600s to 31d"},
    {"topics: [{name: a.b.c, labels: {Team: x}}]", "topics[0].labels.Team: allowed are lower-case"},
    {"topics: [{name: a.b.c, labels: {1a: x}}]", "a key begins with a lower-case letter"},
    {"topics: [{name: a.b.c, labels: {'': x}}]", "a key begins with a lower-case letter"},
    {"topics: [{name: a.b.c, kms_key: k}]", "topics[0].kms_key: allowed is projects/P/locations"},
    {"topics: [{name: a.b.c, storage_regions: ['a b']}]", "is not the name of a region"},
    {"topics: [{name: a.b.c, enforce_in_transit: true}]", "it needs storage_regions"},
    {"topics: [{name: a.b.c, schema: {name: sss}}]",
     "topics[0].schema.encoding: this key is needed"},
    {"topics: [{name: a.b.c, schema: {name: sss, encoding: xml}}]", "allowed are json, binary"},
    {"topics: [{name: a.b.c, publishers: [bob]}]",
     "topics[0].publishers[0]: allowed are user:EMAIL"},
    {"topics: [{name: a.b.c, publishers: ['user:a b']}]", "allowed are user:EMAIL"},
    {"schemas: [{name: sss}]", "schemas[0].type: this key is needed"},
    {"schemas: [{name: sss, type: xml, definition: x}]", "allowed are avro, protocol_buffer"},
    {"schemas: [{name: sss, type: avro}]", "definition: this key or definition_file is needed"},
    {"schemas: [{name: sss, type: avro, definition_file: /nowhere}]", "cannot be read"},
    {"schemas: [{name: sss, type: avro, definition_file: /tmp}]", "cannot be read"},
    {"schemas: [{name: sss, type: avro, definition: x, definition_file: y}]", "only one of"},
    {"subscriptions: [{name: a.b.c.d-e}]", "subscriptions[0].topic: this key is needed"},
    {"subscriptions: [{name: a.b.c.d-e, topic: ''}]", "subscriptions[0].topic: it is empty"},
    {"subscriptions: [{name: a.b.c.d-e, topic: a.b.c, ack_deadline: 5}]",
     "allowed is a time from 10s to 600s"},
    {"subscriptions: [{name: a.b.c.d-e, topic: a.b.c, retry: {minimum: 30s, maximum: 20s}}]",
     "subscriptions[0].retry.minimum: it may not be longer than maximum, which is 20s"},
    {"subscriptions: [{name: a.b.c.d-e, topic: a.b.c, expiration: 2d}]",
     "it may not be shorter than retention, which is 7d"},
    {"subscriptions: [{name: a.b.c.d-e, topic: a.b.c, dead_letter: {max_attempts: 4}}]",
     "dead_letter.max_attempts: allowed is a whole number from 5 to 100"},
    {"subscriptions: [{name: a.b.c.d-e, topic: a.b.c, dead_letter: {topic: a.b.c}}]",
     "it may not be the topic of the subscription itself"},
    {"subscriptions: [{name: a.b.c.d-e, topic: a.b.c, dead_letter: {subscription: a.b.c.d-e}}]",
     "is a subscription of projects/shop/topics/a.b.c"},
    {"subscriptions: [{name: a.b.c.d-e, topic: a.b.c, dead_letter: off}]",
     "dead_letter: a mapping of keys to values is needed here"},
    {"project: other\nproject_number: '1'\n", "it is the number of project other"},
    {"project_number: 12",
     "project_number: this must be a string, and is a number; put it in quotes"},
};

TEST(ProvisionDesired, WhatPubSubWouldRefuseIsRefusedWithItsPath) {
  for (const Wrong& wrong : kWrongs) {
    const Outcome outcome = Read(wrong.yaml);
    ASSERT_FALSE(outcome.problems.empty()) << wrong.yaml;
    EXPECT_THAT(outcome.problems[0], HasSubstr(wrong.expected)) << wrong.yaml;
  }
  EXPECT_THAT(Read("{}", "").problems[0], HasSubstr("no project id"));
  const std::string filter =
      "subscriptions: [{name: a.b.c.d-e, topic: a.b.c, filter: '" + std::string(257, 'x') + "'}]";
  EXPECT_THAT(Read(filter).problems[0], HasSubstr("Pub/Sub allows 256 bytes"));
}

}  // namespace
}  // namespace postbox::cli
