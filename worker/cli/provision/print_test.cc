#include "worker/cli/provision/print.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "worker/cli/provision/database_file.h"
#include "worker/cli/provision/read_file.h"

namespace postbox::cli {
namespace {

using ::testing::HasSubstr;

TEST(ProvisionPrint, AWordOfTheShellStaysOneWord) {
  EXPECT_EQ(ShellQuoted("a.b-c_d@e:f/g=h,i"), "a.b-c_d@e:f/g=h,i");
  EXPECT_EQ(ShellQuoted(""), "''");
  EXPECT_EQ(ShellQuoted("it's"), "'it'\\''s'");
  EXPECT_EQ(ShellQuoted("$(rm -rf /)\n`x`"), "'$(rm -rf /)\n`x`'");
  EXPECT_EQ(ShellQuoted("~"), "'~'");
}

TEST(ProvisionPrint, AStringOfHclEvaluatesNothing) {
  EXPECT_EQ(HclQuoted("a\"b\\c\n\t"), "\"a\\\"b\\\\c\\n\\t\"");
  EXPECT_EQ(HclQuoted("${file(\"x\")} %{if} $ % $${"), "\"$${file(\\\"x\\\")} %%{if} $ % $$${\"");
  EXPECT_EQ(HclQuoted("\x01"), "\"\\u0001\"");
}

TEST(ProvisionPrint, GcloudHasTheOrderOfDependencies) {
  const std::string text = PrintGcloud(ReadFile(
      "project_number: '42'\nschemas: [{name: sss, type: avro, definition: '{\"a\": \"it''s\"}'}]\n"
      "topics: [{name: a.b.c, schema: {name: sss, encoding: json}}]\n"
      "subscriptions: [{name: a.b.c.d-e, topic: a.b.c, filter: 'attributes.x = \"y\"'}]\n"));
  EXPECT_THAT(text, HasSubstr("gcloud pubsub schemas create sss \\\n  --project=shop \\\n  "
                              "--type=avro \\\n  --definition='{\"a\": \"it'\\''s\"}'\n"));
  EXPECT_THAT(text, HasSubstr("--message-filter='attributes.x = \"y\"'"));
  size_t last = 0;
  for (const char* part :
       {"schemas create sss", "topics create a.b.c ", "topics create a.b.c.dlq",
        "topics add-iam-policy-binding a.b.c.dlq", "subscriptions create a.b.c.d-e",
        "subscriptions create a.b.c.dlq-monitor",
        "subscriptions add-iam-policy-binding a.b.c.d-e"}) {
    const size_t place = text.find(part);
    ASSERT_NE(place, std::string::npos) << part << "\n" << text;
    EXPECT_GT(place, last) << part;
    last = place;
  }
}

TEST(ProvisionPrint, TerraformRefersToTheResourcesOfTheFile) {
  const std::string text = PrintTerraform(ReadFile(
      "topics: [{name: a.b.c}, {name: a.b_c, publishers: ['user:x@example.com']}]\n"
      "subscriptions: [{name: a.b.c.d-e, topic: a.b.c, dead_letter: none, expiration: 31d}, "
      "{name: x.y.z.d-e, topic: x.y.z, dead_letter: none}]\n"));
  EXPECT_THAT(text, HasSubstr("resource \"google_pubsub_topic\" \"a_b_c\" {"));
  EXPECT_THAT(text, HasSubstr("resource \"google_pubsub_topic\" \"a_b_c_2\" {"));
  EXPECT_THAT(text, HasSubstr("= google_pubsub_topic.a_b_c.id\n"));
  EXPECT_THAT(text, HasSubstr("= \"projects/shop/topics/x.y.z\"\n"));
  EXPECT_THAT(text, HasSubstr("    ttl = \"2678400s\"\n"));
  EXPECT_THAT(text, HasSubstr("    ttl = \"\"\n"));
  EXPECT_THAT(text, HasSubstr("  topic   = google_pubsub_topic.a_b_c_2.name\n"));
}

TEST(ProvisionDatabaseFile, ItIsAFileThatCanBeReadAgain) {
  DatabaseResources resources{"shop", {"a.b.c", "odd \"name\"\n"}, {}};
  resources.subscriptions = {{"a.b.c.d-e", 5, 14 * 86400, ""},
                             {"x.y.z.reader-one", 200, 3 * 86400, "x.y.z.dead"},
                             {"projects/other/subscriptions/o.p.q.r-s", 5, 0, ""},
                             {"plain", 5, 0, ""}};
  std::vector<std::string> warnings;
  const std::string text = DatabaseFileText(resources, &warnings);
  std::string error;
  const auto document = ParseDocument("f.yaml", text, &error);
  ASSERT_TRUE(document) << error << text;
  EXPECT_EQ((*document)["project"], "shop");
  EXPECT_EQ((*document)["topics"][1]["name"], "odd \"name\"\n");
  const Json& all = (*document)["subscriptions"];
  EXPECT_EQ(all[0], Json::parse(R"({"name": "a.b.c.d-e", "topic": "a.b.c"})"));
  EXPECT_EQ(all[1], Json::parse(R"({"name": "x.y.z.reader-one", "topic": "x.y.z", "retention": "3d",
                          "dead_letter": {"topic": "x.y.z.dead", "max_attempts": 100}})"));
  EXPECT_EQ(all[2]["topic"], "projects/other/topics/o.p.q");
  EXPECT_EQ(all[3]["topic"], "");
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], HasSubstr("plain"));
}

}  // namespace
}  // namespace postbox::cli
