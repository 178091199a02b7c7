#include "worker/emulator/broker/schemas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "worker/emulator/broker/broker.h"
#include "worker/emulator/broker/test_names.h"
#include "worker/emulator/rules/service_limits.h"
#include "worker/emulator/rules/status.h"

namespace postbox::emulator {
namespace {

namespace pb = google::pubsub::v1;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Code = absl::StatusCode;

constexpr char kParent[] = "projects/p";
constexpr char kName[] = "projects/p/schemas/shop";
constexpr char kOne[] = R"({"type":"record","name":"R","fields":[{"name":"a","type":"string"}]})";
constexpr char kTwo[] =
    R"({"type":"record","name":"R","fields":[{"name":"a","type":"string"},
       {"name":"b","type":"int","default":0}]})";

pb::Schema Avro(const std::string& definition) {
  pb::Schema schema;
  schema.set_type(pb::Schema::AVRO);
  schema.set_definition(definition);
  return schema;
}

class SchemasTest : public testing::Test {
 protected:
  absl::StatusOr<pb::Schema> Create(const pb::Schema& schema, const std::string& id = "shop") {
    pb::CreateSchemaRequest request;
    request.set_parent(kParent);
    request.set_schema_id(id);
    *request.mutable_schema() = schema;
    return schemas_.Create(request);
  }
  absl::StatusOr<pb::Schema> Commit(const pb::Schema& schema) {
    pb::CommitSchemaRequest request;
    request.set_name(kName);
    *request.mutable_schema() = schema;
    return schemas_.Commit(request);
  }
  absl::StatusOr<pb::Schema> Get(const std::string& name, pb::SchemaView view = {}) {
    pb::GetSchemaRequest request;
    request.set_name(name);
    request.set_view(view);
    return schemas_.Get(request);
  }
  absl::StatusOr<pb::Schema> DeleteRevision(const std::string& name) {
    pb::DeleteSchemaRevisionRequest request;
    request.set_name(name);
    return schemas_.DeleteRevision(request);
  }
  absl::StatusOr<pb::Schema> Rollback(const std::string& id) {
    pb::RollbackSchemaRequest request;
    request.set_name(kName);
    request.set_revision_id(id);
    return schemas_.Rollback(request);
  }
  std::vector<std::string> Revisions(int page_size = 0) {
    std::vector<std::string> ids;
    pb::ListSchemaRevisionsRequest request;
    request.set_name(kName);
    request.set_page_size(page_size);
    do {
      const auto page = schemas_.ListRevisions(request);
      EXPECT_TRUE(page.ok()) << page.status();
      if (!page.ok()) return ids;
      if (page_size > 0) {
        EXPECT_LE(page->schemas_size(), page_size);
      }
      for (const pb::Schema& schema : page->schemas()) ids.push_back(schema.revision_id());
      request.set_page_token(page->next_page_token());
    } while (!request.page_token().empty());
    return ids;
  }
  Code Publish(const std::vector<std::string>& data) {
    pb::PublishRequest request;
    request.set_topic(kOrders);
    for (const std::string& each : data) request.add_messages()->set_data(each);
    last_ = broker_.publishing()->Publish(request).status();
    return last_.code();
  }
  pb::Topic TopicWith(pb::Encoding encoding, const std::string& first = "",
                      const std::string& last = "") {
    pb::Topic topic;
    topic.set_name(kOrders);
    topic.mutable_schema_settings()->set_schema(kName);
    topic.mutable_schema_settings()->set_encoding(encoding);
    topic.mutable_schema_settings()->set_first_revision_id(first);
    topic.mutable_schema_settings()->set_last_revision_id(last);
    return topic;
  }
  void Subscribe() {
    pb::Subscription subscription;
    subscription.set_name("projects/p/subscriptions/reader");
    subscription.set_topic(kOrders);
    ASSERT_TRUE(broker_.subscriptions()->Create(subscription).ok());
  }
  std::vector<pb::PubsubMessage> Pull() {
    pb::PullRequest request;
    request.set_subscription("projects/p/subscriptions/reader");
    request.set_max_messages(100);
    std::vector<pb::PubsubMessage> messages;
    const auto pulled = broker_.pulling()->Pull(request, nullptr);
    EXPECT_TRUE(pulled.ok());
    if (!pulled.ok()) return {};
    for (const LeasedMessage& each : *pulled) {
      messages.push_back(each.message->Parse());
    }
    return messages;
  }

  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  Broker broker_{[this] { return now_; }, BrokerOptions{}};
  Schemas& schemas_ = *broker_.schemas();
  absl::Status last_;
};

TEST_F(SchemasTest, ASchemaIsCreatedReadAndDeleted) {
  const auto created = Create(Avro(kOne));
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_EQ(created->name(), kName);
  EXPECT_EQ(created->revision_id().size(), 8u);
  EXPECT_EQ(created->revision_create_time().seconds(), 1'700'000'000);
  EXPECT_EQ(Get(kName)->definition(), kOne) << "a read returns everything, unless told otherwise";
  EXPECT_EQ(Get(kName, pb::BASIC)->definition(), "");
  EXPECT_EQ(Get(kName, pb::BASIC)->revision_id(), created->revision_id());
  EXPECT_EQ(Get(std::string(kName) + "@" + created->revision_id(), pb::FULL)->definition(), kOne);
  EXPECT_EQ(broker_.topics()->DeleteSchema(kName).code(), Code::kOk);
  EXPECT_EQ(Get(kName).status().code(), Code::kNotFound);
  EXPECT_EQ(broker_.topics()->DeleteSchema(kName).code(), Code::kNotFound);
}

TEST_F(SchemasTest, ABadSchemaIsRefused) {
  EXPECT_EQ(Create(Avro("{}")).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Create(pb::Schema(Avro(kOne)), "").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Create(Avro(kOne), "goog-a").status().code(), Code::kInvalidArgument);
  pb::Schema untyped = Avro(kOne);
  untyped.clear_type();
  EXPECT_EQ(Create(untyped).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Create(Avro("\"" + std::string(300 * 1024, 'x') + "\"")).status().code(),
            Code::kInvalidArgument);
  ASSERT_TRUE(Create(Avro(kOne)).ok());
  EXPECT_EQ(Create(Avro(kOne)).status().code(), Code::kAlreadyExists);
  pb::ValidateSchemaRequest request;
  request.set_parent(kParent);
  *request.mutable_schema() = Avro("nonsense");
  EXPECT_EQ(Schemas::Validate(request).code(), Code::kInvalidArgument);
  *request.mutable_schema() = Avro(kOne);
  EXPECT_TRUE(Schemas::Validate(request).ok());
}

TEST_F(SchemasTest, RevisionsAreCommittedListedRolledBackToAndDeleted) {
  const std::string first = Create(Avro(kOne))->revision_id();
  const auto second = Commit(Avro(kTwo));
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(Get(kName)->revision_id(), second->revision_id());
  const auto third = Rollback(first);
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(third->definition(), kOne);
  EXPECT_NE(third->revision_id(), first) << "what was is a new revision";
  const auto all = ElementsAre(first, second->revision_id(), third->revision_id());
  EXPECT_THAT(Revisions(), all);
  EXPECT_THAT(Revisions(1), all);
  const std::string name = std::string(kName) + "@" + second->revision_id();
  EXPECT_EQ(DeleteRevision(name)->definition(), kTwo);
  EXPECT_THAT(Revisions(), ElementsAre(first, third->revision_id()));
  EXPECT_EQ(DeleteRevision(name).status().code(), Code::kNotFound);
  EXPECT_EQ(DeleteRevision(kName).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(DeleteRevision(std::string(kName) + "@" + first).ok());
  EXPECT_EQ(DeleteRevision(std::string(kName) + "@" + third->revision_id()).status().code(),
            Code::kInvalidArgument)
      << "the last one stays";
  EXPECT_EQ(Rollback("").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Rollback(first).status().code(), Code::kNotFound);
}

TEST_F(SchemasTest, ARevisionMustBeCompatibleAndOfTheSameType) {
  ASSERT_TRUE(Create(Avro(kOne)).ok());
  const auto refused =
      Commit(Avro(R"({"type":"record","name":"R","fields":[{"name":"a","type":"int"}]})"));
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("field \"a\""));
  pb::Schema other;
  other.set_type(pb::Schema::PROTOCOL_BUFFER);
  other.set_definition("syntax = \"proto3\"; message R { string a = 1; }");
  EXPECT_EQ(Commit(other).status().code(), Code::kInvalidArgument);
  pb::Schema misnamed = Avro(kOne);
  misnamed.set_name("projects/p/schemas/other");
  EXPECT_EQ(Commit(misnamed).status().code(), Code::kInvalidArgument);
}

TEST_F(SchemasTest, ASchemaHasTwentyRevisionsAtMost) {
  const std::string first = Create(Avro(kOne))->revision_id();
  for (size_t i = 1; i < kMaxSchemaRevisions; ++i) ASSERT_TRUE(Commit(Avro(kOne)).ok());
  EXPECT_EQ(Commit(Avro(kOne)).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(Rollback(first).status().code(), Code::kResourceExhausted);
}

TEST_F(SchemasTest, SchemasAreListedWithoutTheirDefinitionsUnlessAskedFor) {
  ASSERT_TRUE(Create(Avro(kOne), "one-a").ok());
  ASSERT_TRUE(Create(Avro(kOne), "two-b").ok());
  pb::ListSchemasRequest request;
  request.set_parent(kParent);
  request.set_page_size(1);
  auto page = schemas_.List(request);
  ASSERT_EQ(page->schemas_size(), 1);
  EXPECT_EQ(page->schemas(0).name(), "projects/p/schemas/one-a");
  EXPECT_EQ(page->schemas(0).definition(), "");
  request.set_page_token(page->next_page_token());
  request.set_view(pb::FULL);
  page = schemas_.List(request);
  EXPECT_EQ(page->schemas(0).definition(), kOne);
  EXPECT_EQ(page->next_page_token(), "");
  request.set_page_token("x");
  EXPECT_EQ(schemas_.List(request).status().code(), Code::kInvalidArgument);
}

TEST_F(SchemasTest, AMessageIsValidated) {
  ASSERT_TRUE(Create(Avro(kOne)).ok());
  pb::ValidateMessageRequest request;
  request.set_parent(kParent);
  request.set_name(kName);
  request.set_message(R"({"a":"x"})");
  EXPECT_EQ(schemas_.ValidateMessage(request).code(), Code::kInvalidArgument) << "no encoding";
  request.set_encoding(pb::JSON);
  EXPECT_TRUE(schemas_.ValidateMessage(request).ok());
  request.set_encoding(pb::BINARY);
  EXPECT_EQ(schemas_.ValidateMessage(request).code(), Code::kInvalidArgument);
  request.set_message("\2x");
  EXPECT_TRUE(schemas_.ValidateMessage(request).ok());
  *request.mutable_schema() = Avro(kTwo);
  EXPECT_EQ(schemas_.ValidateMessage(request).code(), Code::kInvalidArgument);
  request.set_name("projects/p/schemas/nowhere");
  EXPECT_EQ(schemas_.ValidateMessage(request).code(), Code::kNotFound);
}

TEST_F(SchemasTest, ATopicTakesWhatFollowsItsSchemaAndSaysWhichRevision) {
  const std::string revision = Create(Avro(kOne))->revision_id();
  ASSERT_TRUE(broker_.topics()->Create(TopicWith(pb::JSON)).ok());
  Subscribe();
  EXPECT_EQ(Publish({R"({"a":"x"})", R"({"a":1})"}), Code::kInvalidArgument);
  EXPECT_THAT(std::string(last_.message()), HasSubstr("Message failed schema validation"));
  bool told = false;
  for (const auto& [key, value] : GetAckFailures(last_)) {
    told = told || (key == "revisionInfo" && value.find(revision) != std::string::npos);
  }
  EXPECT_TRUE(told);
  EXPECT_THAT(Pull(), testing::IsEmpty()) << "a bad message refuses its whole request";
  EXPECT_EQ(Publish({R"({"a":"x"})"}), Code::kOk);
  const std::vector<pb::PubsubMessage> messages = Pull();
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(messages[0].attributes().at("googclient_schemaname"), kName);
  EXPECT_EQ(messages[0].attributes().at("googclient_schemaencoding"), "JSON");
  EXPECT_EQ(messages[0].attributes().at("googclient_schemarevisionid"), revision);
}

TEST_F(SchemasTest, ATopicAllowsTheRevisionsBetweenItsFirstAndItsLast) {
  const std::string first = Create(Avro(kOne))->revision_id();
  const std::string second = Commit(Avro(kTwo))->revision_id();
  EXPECT_EQ(broker_.topics()->Create(TopicWith(pb::JSON, second, first)).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(broker_.topics()->Create(TopicWith(pb::JSON, "deadbeef")).status().code(),
            Code::kNotFound);
  ASSERT_TRUE(broker_.topics()->Create(TopicWith(pb::JSON, "", first)).ok());
  Subscribe();
  EXPECT_EQ(Publish({R"({"a":"x","b":1})"}), Code::kInvalidArgument);
  pb::UpdateTopicRequest update;
  *update.mutable_topic() = TopicWith(pb::JSON);
  update.mutable_update_mask()->add_paths("schema_settings.last_revision_id");
  ASSERT_TRUE(broker_.topics()->Update(update).ok());
  EXPECT_EQ(Publish({R"({"a":"x","b":1})", R"({"a":"x"})"}), Code::kOk);
  const std::vector<pb::PubsubMessage> messages = Pull();
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[0].attributes().at("googclient_schemarevisionid"), second);
  EXPECT_EQ(messages[1].attributes().at("googclient_schemarevisionid"), first);
  *update.mutable_topic() = TopicWith(pb::JSON, second);
  update.mutable_update_mask()->set_paths(0, "schema_settings");
  ASSERT_TRUE(broker_.topics()->Update(update).ok());
  EXPECT_EQ(Publish({R"({"a":"x"})"}), Code::kInvalidArgument);
  update.mutable_topic()->clear_schema_settings();
  ASSERT_TRUE(broker_.topics()->Update(update).ok());
  EXPECT_EQ(Publish({"anything"}), Code::kOk);
}

TEST_F(SchemasTest, ATopicWhoseSchemaWasDeletedTakesNothing) {
  ASSERT_TRUE(Create(Avro(kOne)).ok());
  ASSERT_TRUE(broker_.topics()->Create(TopicWith(pb::JSON)).ok());
  ASSERT_TRUE(broker_.topics()->DeleteSchema(kName).ok());
  ASSERT_TRUE(Create(Avro(kOne)).ok()) << "another one of that name";
  EXPECT_EQ(broker_.topics()->Get(kOrders)->schema_settings().schema(), "_deleted-schema_");
  EXPECT_EQ(Publish({R"({"a":"x"})"}), Code::kNotFound);
}

TEST_F(SchemasTest, ATopicNeedsASchemaThatExistsAndAnEncoding) {
  EXPECT_EQ(broker_.topics()->Create(TopicWith(pb::JSON)).status().code(), Code::kNotFound);
  ASSERT_TRUE(Create(Avro(kOne)).ok());
  EXPECT_EQ(broker_.topics()->Create(TopicWith(pb::ENCODING_UNSPECIFIED)).status().code(),
            Code::kInvalidArgument);
  EXPECT_TRUE(broker_.topics()->Create(TopicWith(pb::BINARY)).ok());
  EXPECT_EQ(Publish({"\2x"}), Code::kOk);
  EXPECT_EQ(Publish({"\2xy"}), Code::kInvalidArgument);
}

}  // namespace
}  // namespace postbox::emulator
