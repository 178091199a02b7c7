#include "worker/emulator/schema/avro_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace postbox::emulator {
namespace {

using ::testing::HasSubstr;

std::string Record(const std::string& fields) {
  return R"({"type":"record","name":"R","fields":[)" + fields + "]}";
}

std::string Field(const std::string& type) { return Record(R"({"name":"f","type":)" + type + "}"); }

TEST(AvroSchema, TakesWhatTheSpecificationAllows) {
  for (const std::string& text : {
           std::string(R"("string")"),
           std::string(R"({"type":"null"})"),
           std::string(R"({"type":"array","items":"long"})"),
           std::string(R"({"type":"map","values":{"type":"array","items":"bytes"}})"),
           std::string(R"({"type":"enum","name":"a.b.E","symbols":["A","B"],"default":"B"})"),
           std::string(R"({"type":"fixed","name":"F","size":16,"logicalType":"uuid"})"),
           std::string(R"({"type":"error","name":"R","fields":[]})"),
           Record(""),
           Record(R"({"name":"a","type":"int","doc":"d","order":"ignore","default":-1})"),
           Field(R"(["null","R"])"),  // of itself
           Field(R"(["null","string",{"type":"array","items":"R"}])"),
           Field(R"({"type":"long","logicalType":"timestamp-micros"})"),
           Field(R"({"type":"bytes","logicalType":"decimal","precision":4,"scale":9})"),
           Field(R"({"type":"enum","name":"E","namespace":"x.y","symbols":[]})"),
           Record(R"({"name":"a","type":{"type":"fixed","name":"F","size":2}},
                     {"name":"b","type":"F"},{"name":"c","type":["F","null"],"default":"ÿ\u0000"})"),
           Record(R"({"name":"a","type":"double","default":1})"),
           Record(R"({"name":"a","type":["int","null"],"default":1})"),
           Record(R"({"name":"a","type":{"type":"array","items":"int"},"default":[1,2]})"),
           Record(R"({"name":"a","type":{"type":"record","name":"S","fields":[
                       {"name":"x","type":"int","default":3}]},"default":{}})"),
       }) {
    EXPECT_TRUE(AvroSchema::Parse(text).ok()) << text << ": " << AvroSchema::Parse(text).status();
  }
}

TEST(AvroSchema, AReferenceIsCompletedWithTheNamespaceOfWhatEnclosesIt) {
  const auto schema = AvroSchema::Parse(
      R"({"type":"record","name":"R","namespace":"a.b","fields":[
            {"name":"x","type":{"type":"fixed","name":"F","size":1}},
            {"name":"y","type":"F"},{"name":"z","type":"a.b.F"},
            {"name":"q","type":["null","a.b.R"]}]})");
  ASSERT_TRUE(schema.ok()) << schema.status();
  EXPECT_EQ(schema->root().name, "a.b.R");
  EXPECT_EQ(schema->root().fields[1].type, schema->root().fields[2].type);
  EXPECT_EQ(schema->root().fields[1].type->name, "a.b.F");
  EXPECT_EQ(schema->root().fields[3].type->branches[1], &schema->root());
}

struct Bad {
  std::string text;
  const char* reason;
};

void ExpectRefused(const std::vector<Bad>& table) {
  for (const Bad& row : table) {
    const absl::Status status = AvroSchema::Parse(row.text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << row.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.reason)) << row.text;
  }
}

TEST(AvroSchema, RefusesWhatIsNoSchemaWithTheReason) {
  ExpectRefused({
      {"", "not JSON"},
      {"no json", "not JSON"},
      {"{\"type\":\"string\"} x", "not JSON"},
      {"[\"null\",\"int\"]", "one type, not a union"},
      {"17", "must be a string, an object or an array"},
      {R"({"not_actually":"avro"})", "has no \"type\""},
      {R"({"type":{"type":"string"}})", "\"type\" must be a string"},
      {R"("strin")", "no type \"strin\""},
      {R"({"type":"record","fields":[]})", "has no \"name\""},
      {R"({"type":"record","name":"R"})", "needs an array \"fields\""},
      {R"({"type":"record","name":"1R","fields":[]})", "bad name"},
      {R"({"type":"record","name":"int","fields":[]})", "name of a primitive type"},
      {R"({"type":"record","name":"R","namespace":"a..b","fields":[]})", "bad namespace"},
      {Record("3"), "must be an object"},
      {Record(R"({"name":"a"})"), "has no \"type\""},
      {Record(R"({"name":"a b","type":"int"})"), "bad name of a field"},
      {Record(R"({"name":"a","type":"int"},{"name":"a","type":"int"})"), "two fields \"a\""},
      {Record(R"({"name":"a","type":"int","order":"up"})"), "\"order\""},
      {Field("\"S\""), "no type \"S\""},
      {Field(R"(["int","int"])"), "\"int\" twice"},
      {Field(R"(["null",["int"]])"), "contains a union"},
      {Field(R"({"type":"record","name":"R","fields":[]})"), "defined twice"},
      {Field(R"({"type":"array"})"), "no \"items\""},
      {Field(R"({"type":"map"})"), "no \"values\""},
      {Field(R"({"type":"fixed","name":"F","size":-1})"), "\"size\""},
      {Field(R"({"type":"fixed","name":"F","size":1.5})"), "\"size\""},
      {Field(R"({"type":"enum","name":"E"})"), "needs an array \"symbols\""},
      {Field(R"({"type":"enum","name":"E","symbols":["A","A"]})"), "a symbol twice"},
      {Field(R"({"type":"enum","name":"E","symbols":["a-b"]})"), "must be names"},
      {Field(R"({"type":"enum","name":"E","symbols":["A"],"default":"B"})"), "must be one of"},
      {Record(R"({"name":"a","type":"int","default":"x"})"), "default"},
      {Record(R"({"name":"a","type":"int","default":2147483648})"), "default"},
      {Record(R"({"name":"a","type":["null","int"],"default":1})"), "default"},
      {Record(R"({"name":"a","type":"bytes","default":"Ā"})"), "default"},
      {Record(R"({"name":"a","type":{"type":"fixed","name":"F","size":2},"default":"x"})"),
       "default"},
  });
}

TEST(AvroSchema, TypesInEachOtherHaveALimit) {
  const auto nested = [](int depth) {
    std::string text = "\"int\"";
    for (int i = 0; i < depth; ++i) text = R"({"type":"array","items":)" + text + "}";
    return text;
  };
  EXPECT_TRUE(AvroSchema::Parse(nested(kMaxSchemaDepth)).ok());
  ExpectRefused({{nested(kMaxSchemaDepth + 1), "too deeply"},
                 {nested(1000), "too deeply"},
                 {std::string(300'000, '['), "too deeply"}});
  // What is in a string does not count.
  const std::string doc = R"(\")" + std::string(2000, '{');
  EXPECT_TRUE(AvroSchema::Parse(R"({"type":"int","doc":")" + doc + "\"}").ok());
}

}  // namespace
}  // namespace postbox::emulator
