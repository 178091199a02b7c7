// Messages against a schema, in JSON (avro_json.h) and in binary (avro_binary.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "worker/emulator/schema/avro_binary.h"
#include "worker/emulator/schema/avro_json.h"

namespace postbox::emulator {
namespace {

using ::testing::HasSubstr;
using namespace std::string_literals;

constexpr char kTree[] =
    R"({"type":"record","name":"T","fields":[{"name":"next","type":["null","T"]}]})";

std::string Item(const std::string& type) {
  return R"({"type":"record","name":"R","fields":[{"name":"f","type":)" + type + "}]}";
}

AvroSchema ParseAvro(const std::string& text) {
  auto schema = AvroSchema::Parse(text);
  EXPECT_TRUE(schema.ok()) << text << ": " << schema.status();
  return *std::move(schema);
}

struct Row {
  std::string schema;
  std::vector<std::string> good;
  std::vector<std::string> bad;
};

TEST(AvroJson, TakesTheValuesOfItsTypeAndNoOthers) {
  const std::vector<Row> table = {
      {R"("null")", {"null", " null "}, {"0", "", "null null", "{}"}},
      {R"("boolean")", {"true", "false"}, {"1", "\"true\"", "null"}},
      {R"("int")", {"0", "-2147483648", "2147483647"}, {"2147483648", "1.0", "1e2", "\"1\""}},
      {R"("long")",
       {"9223372036854775807", "-9223372036854775808"},
       {"9223372036854775808", "-9223372036854775809", "0.5"}},
      {R"("float")", {"1", "1.5", "-1e10"}, {"\"1\"", "NaN", "null"}},
      {R"("double")", {"1", "1e300"}, {"true", "\"NaN\""}},
      {R"("string")", {"\"\"", "\"ü\""}, {"1", "null", "\"\xFF\""}},
      {R"("bytes")", {"\"\"", R"("\u0000ÿ")"}, {R"("Ā")", R"("😀")", "[1]"}},
      {R"({"type":"fixed","name":"F","size":2})", {R"("ab")", R"("éé")"}, {R"("a")", R"("abc")"}},
      {R"({"type":"enum","name":"E","symbols":["A","B"]})", {"\"A\""}, {"\"C\"", "0", "\"a\""}},
      {R"({"type":"array","items":"int"})", {"[]", "[1,2]"}, {"[1,\"2\"]", "{}", "[1", "[1]]"}},
      {R"({"type":"map","values":"int"})", {"{}", R"({"a":1})"}, {R"({"a":"1"})", "[]"}},
      {Item(R"("int")"),
       {R"({"f":1})"},
       {"{}", "[]", R"({"f":1,"g":2})", R"({"F":1})", R"({"f":null})", R"({"f":1} x)"}},
      {Item(R"(["null","int","string"])"),
       {R"({"f":null})", R"({"f":{"int":1}})", R"({"f":{"string":"int"}})"},
       {R"({"f":1})", "{}", R"({"f":{"null":null}})", R"({"f":{"long":1}})",
        R"({"f":{"int":1,"string":"a"}})", R"({"f":{}})", R"({"f":{"int":"1"}})"}},
      {Item(R"(["int",{"type":"fixed","name":"a.F","size":1}])"),
       {R"({"f":{"a.F":"x"}})"},
       {R"({"f":{"F":"x"}})", R"({"f":null})"}},
      {kTree,
       {R"({"next":null})", R"({"next":{"T":{"next":null}}})"},
       {R"({"next":{"T":{}}})", R"({"next":{"next":null}})"}},
  };
  for (const Row& row : table) {
    const AvroSchema schema = ParseAvro(row.schema);
    for (const std::string& data : row.good) {
      const absl::Status status = CheckAvroJson(schema.root(), data);
      EXPECT_TRUE(status.ok()) << row.schema << " " << data << ": " << status;
    }
    for (const std::string& data : row.bad) {
      EXPECT_EQ(CheckAvroJson(schema.root(), data).code(), absl::StatusCode::kInvalidArgument)
          << row.schema << " " << data;
    }
  }
}

TEST(AvroJson, AFieldWithADefaultMustBeThereToo) {
  const AvroSchema schema =
      ParseAvro(R"({"type":"record","name":"R","fields":[{"name":"f","type":"int","default":1}]})");
  EXPECT_THAT(std::string(CheckAvroJson(schema.root(), "{}").message()),
              HasSubstr("field \"f\" of R is missing"));
}

TEST(AvroBinary, TakesTheValuesOfItsTypeAndNoOthers) {
  const std::vector<Row> table = {
      {R"("null")", {""}, {"\0"s}},
      {R"("boolean")", {"\0"s, "\1"}, {"", "\2", "\0\0"s}},
      {R"("int")",
       {"\0"s, "\1", "\xFE\xFF\xFF\xFF\x0F", "\xFF\xFF\xFF\xFF\x0F"},
       {"", "\x80", "\x80\x80\x80\x80\x10", "\0\0"s}},
      {R"("long")",
       {"\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01"},
       {"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x02",
        "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"}},
      {R"("float")", {"abcd"}, {"abc", "abcde"}},
      {R"("double")", {"abcdefgh"}, {"abcdefg"}},
      {R"("string")", {"\0"s, "\x04ü", "\x06xyz"}, {"\x06xy", "\x06xyzz", "\x02\xFF", "\x01"}},
      {R"("bytes")", {"\x02\xFF"}, {"\x04\xFF", "\x01", "\xFE\xFF\xFF\xFF\xFF\x01"}},
      {R"({"type":"fixed","name":"F","size":2})", {"ab"}, {"a", "abc"}},
      {R"({"type":"enum","name":"E","symbols":["A","B"]})", {"\0"s, "\2"}, {"\4", "\1"}},
      {R"({"type":"array","items":"boolean"})",
       {"\0"s, "\2\1\0"s, "\4\1\0\0"s, "\2\1\2\1\0"s, "\3\4\1\1\0"s},
       {"\2\1", "\2\0"s, "\3\1\0\0"s, "\3\x7E\1\1\0"s}},
      {R"({"type":"map","values":"int"})", {"\0"s, "\2\2a\2\0"s}, {"\2\2a\2", "\2\2\xFF\2\0"s}},
      {Item(R"(["null","int"])"), {"\0"s, "\2\2"}, {"\4", "\2", "\1"}},
      {kTree, {"\0"s, "\2\2\0"s}, {"\2\2"}},
  };
  for (const Row& row : table) {
    const AvroSchema schema = ParseAvro(row.schema);
    for (const std::string& data : row.good) {
      const absl::Status status = CheckAvroBinary(schema.root(), data);
      EXPECT_TRUE(status.ok()) << row.schema << " " << testing::PrintToString(data) << status;
    }
    for (const std::string& data : row.bad) {
      EXPECT_EQ(CheckAvroBinary(schema.root(), data).code(), absl::StatusCode::kInvalidArgument)
          << row.schema << " " << testing::PrintToString(data);
    }
  }
}

TEST(AvroMessage, OneThatAnnouncesOrNestsEndlesslyIsRefused) {
  const std::string most = "\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01";
  const std::string least = "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01";
  const AvroSchema nulls = ParseAvro(R"({"type":"array","items":"null"})");
  EXPECT_THAT(std::string(CheckAvroBinary(nulls.root(), most).message()),
              HasSubstr("too many values"));
  EXPECT_FALSE(CheckAvroBinary(nulls.root(), least + most).ok());
  const AvroSchema tree = ParseAvro(kTree);
  EXPECT_THAT(std::string(CheckAvroBinary(tree.root(), std::string(1'000'000, '\2')).message()),
              HasSubstr("too deeply"));
  std::string json;
  for (int i = 0; i < 100'000; ++i) json += R"({"next":{"T":)";
  json += "null";
  for (int i = 0; i < 100'000; ++i) json += "}}";
  EXPECT_THAT(std::string(CheckAvroJson(tree.root(), json).message()), HasSubstr("too deeply"));
  EXPECT_THAT(std::string(CheckAvroJson(tree.root(), std::string(5'000'000, '[')).message()),
              HasSubstr("too deeply"));
}

}  // namespace
}  // namespace postbox::emulator
