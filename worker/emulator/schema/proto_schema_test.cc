#include "worker/emulator/schema/proto_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace postbox::emulator {
namespace {

using ::testing::HasSubstr;
using namespace std::string_literals;

constexpr char kItem[] = R"(
  syntax = "proto3";
  package shop;
  message Item {
    string name = 1;
    int32 size = 2;
    repeated Tag tags = 3;
    enum Kind { NONE = 0; BOOK = 1; }
    Kind kind = 4;
    message Tag { string text = 1; }
    oneof price { int64 cents = 5; string text = 6; }
    map<string, int32> stock = 7;
  })";

std::string P3(const std::string& body) { return "syntax = \"proto3\"; message M {" + body + "}"; }

std::unique_ptr<ProtoSchema> ParseProto(const std::string& text) {
  auto schema = ProtoSchema::Parse(text);
  EXPECT_TRUE(schema.ok()) << text << schema.status();
  return schema.ok() ? *std::move(schema) : nullptr;
}

TEST(ProtoSchema, RefusesADefinitionThatIsNotOneMessageWithTheReason) {
  struct Bad {
    std::string text, reason;
  };
  for (const Bad& row : std::vector<Bad>{
           {"", "one top-level type"},
           {"nonsense", "line 1:1"},
           {"syntax = \"proto3\"; message M { string a = 1 }", "line 1:"},
           {"syntax = \"proto3\"; message M { Unknown a = 1; }", "Unknown"},
           {P3("string a = 1; string b = 1;"), "1"},
           {P3("") + " message N {}", "one top-level type"},
           {P3("") + " enum E { A = 0; }", "one top-level type"},
           {P3("") + " service S {}", "no service"},
           {"syntax = \"proto3\"; import \"a.proto\"; message M {}", "imports a.proto"},
           {"syntax = \"proto3\"; message M { required int32 a = 1; }", "equired"},
           {"package google.protobuf; message Struct {}", "takes a name of protobuf"},
           {"package google; message protobuf { message Struct {} }", "takes a name of protobuf"},
           {"message google { message protobuf { message Struct {} } }",
            "takes a name of protobuf"},
           {"message " + std::string(200'000, '{'), "too deeply"},
       }) {
    const absl::Status status = ProtoSchema::Parse(row.text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << row.text.substr(0, 100);
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.reason)) << row.text.substr(0, 100);
  }
}

TEST(ProtoSchema, ChecksMessagesInJson) {
  const auto schema = ParseProto(kItem);
  for (const char* good : {"{}", R"({"name":"a","size":3,"kind":"BOOK","cents":"5"})",
                           R"({"tags":[{"text":"x"}],"stock":{"a":1}})"}) {
    EXPECT_TRUE(schema->CheckJson(good).ok()) << good << schema->CheckJson(good);
  }
  for (const std::string& bad :
       {""s, "junk"s, R"({"name":1})"s, R"({"size":"x"})"s, R"({"unknown":1})"s, "[]"s,
        R"({"kind":"CAR"})"s, R"({"name":"a"} {})"s, std::string(1'000'000, '{')}) {
    EXPECT_EQ(schema->CheckJson(bad).code(), absl::StatusCode::kInvalidArgument)
        << bad.substr(0, 50);
  }
}

TEST(ProtoSchema, ChecksMessagesInBinary) {
  const auto schema = ParseProto(kItem);
  for (const std::string& good : {""s, "\x0A\x01z"s, "\x10\x05"s, "\x98\x06\x01"s /* unknown */}) {
    EXPECT_TRUE(schema->CheckBinary(good).ok()) << testing::PrintToString(good);
  }
  for (const std::string& bad : {"\x0A\x05z"s, "junk"s, "\x0A\x01\xFF"s}) {
    EXPECT_EQ(schema->CheckBinary(bad).code(), absl::StatusCode::kInvalidArgument)
        << testing::PrintToString(bad);
  }
  const auto required = ParseProto("syntax = \"proto2\"; message M { required int32 a = 1; }");
  EXPECT_THAT(std::string(required->CheckBinary("").message()), HasSubstr("a"));
  EXPECT_TRUE(required->CheckBinary("\x08\x01").ok());
}

TEST(ProtoSchema, ARevisionAddsAndRemovesOptionalFieldsOnly) {
  const auto revises = [](const std::string& older, const std::string& newer) {
    return ParseProto(newer)->CheckRevises(*ParseProto(older));
  };
  const std::string a = "string a = 1;";
  for (const std::string& other : std::vector<std::string>{
           a, "", a + "int32 b = 2;", "int32 b = 2;" + a, a + "optional int32 b = 2;",
           a + "message N { string x = 1; } N b = 2;", a + "enum E { X = 0; } E e = 3;"}) {
    EXPECT_TRUE(revises(P3(a), P3(other)).ok()) << other << revises(P3(a), P3(other));
    EXPECT_TRUE(revises(P3(other), P3(a)).ok()) << other << revises(P3(other), P3(a));
  }
  for (const std::string& other : std::vector<std::string>{
           "string b = 1;", "bytes a = 1;", "repeated string a = 1;", a + "repeated int32 b = 2;",
           "oneof o { string a = 1; }", a + "map<string, string> m = 2;"}) {
    EXPECT_EQ(revises(P3(a), P3(other)).code(), absl::StatusCode::kInvalidArgument) << other;
    EXPECT_EQ(revises(P3(other), P3(a)).code(), absl::StatusCode::kInvalidArgument) << other;
  }
  EXPECT_FALSE(revises(P3(""), "syntax = \"proto3\"; message N {}").ok());
  const std::string nested = "message N { string x = 1; } N n = 1;";
  EXPECT_FALSE(revises(P3(nested), P3("message N { int32 x = 1; } N n = 1;")).ok());
  EXPECT_TRUE(revises(P3(nested), P3("message N { string x = 1; int32 y = 2; } N n = 1;")).ok());
  const std::string one = "enum E { X = 0; Y = 1; } E e = 1;";
  EXPECT_FALSE(revises(P3(one), P3("enum E { X = 0; Y = 2; } E e = 1;")).ok());
  EXPECT_TRUE(revises(P3(one), P3("enum E { X = 0; Y = 1; Z = 2; } E e = 1;")).ok());
}

}  // namespace
}  // namespace postbox::emulator
