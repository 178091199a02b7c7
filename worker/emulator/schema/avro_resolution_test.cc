#include "worker/emulator/schema/avro_resolution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace postbox::emulator {
namespace {

using ::testing::HasSubstr;

absl::Status Reads(const std::string& reader, const std::string& writer) {
  const auto with = AvroSchema::Parse(reader);
  const auto written = AvroSchema::Parse(writer);
  EXPECT_TRUE(with.ok()) << reader << with.status();
  EXPECT_TRUE(written.ok()) << writer << written.status();
  if (!with.ok() || !written.ok()) return absl::InternalError("no schema");
  return CheckAvroReads(with->root(), written->root());
}

std::string R(const std::string& fields, const std::string& name = "R") {
  return R"({"type":"record","name":")" + name + R"(","fields":[)" + fields + "]}";
}
std::string F(const std::string& type) { return R(R"({"name":"f","type":)" + type + "}"); }

constexpr char kInt[] = R"("int")";
constexpr char kEnumA[] = R"({"type":"enum","name":"E","symbols":["A"]})";
constexpr char kEnumAb[] = R"({"type":"enum","name":"E","symbols":["A","B"]})";
constexpr char kEnumDefault[] = R"({"type":"enum","name":"E","symbols":["A"],"default":"A"})";

TEST(AvroResolution, AReaderTakesWhatTheSpecificationLetsItRead) {
  struct Pair {
    std::string reader, writer;
  };
  for (const Pair& pair : std::vector<Pair>{
           {kInt, kInt},
           {R"("long")", kInt},
           {R"("double")", kInt},
           {R"("double")", R"("float")"},
           {R"("float")", R"("long")"},
           {R"("string")", R"("bytes")"},
           {R"("bytes")", R"("string")"},
           {R"({"type":"array","items":"long"})", R"({"type":"array","items":"int"})"},
           {kEnumAb, kEnumA},
           {kEnumDefault, kEnumAb},
           {F(R"(["null","long"])"), F(kInt)},
           {F(R"(["null","int"])"), F(R"(["int","null"])")},
           {F(kInt), F(R"(["int"])")},
           {R(""), F(kInt)},
           {R(R"({"name":"f","type":"int","default":0})"), R("")},
           {R(R"({"name":"g","aliases":["f"],"type":"int"})"), F(kInt)},
           {R("", "a.R"), R("", "b.R")},
           {F(R"(["null","R"])"), F(R"(["null","R"])")},
       }) {
    const absl::Status status = Reads(pair.reader, pair.writer);
    EXPECT_TRUE(status.ok()) << pair.reader << " of " << pair.writer << ": " << status;
  }
}

TEST(AvroResolution, AReaderRefusesTheRestWithTheReason) {
  struct Pair {
    std::string reader, writer, reason;
  };
  for (const Pair& pair : std::vector<Pair>{
           {kInt, R"("long")", "int cannot read long"},
           {R"("long")", R"("float")", "long cannot read float"},
           {kInt, R"("string")", "int cannot read string"},
           {kEnumA, kEnumAb, "no symbol B"},
           {F(kInt), R(""), "has no default"},
           {F(kInt), F(R"(["null","int"])"), "int cannot read null"},
           {F(R"(["null","int"])"), F(R"("string")"), "no branch that reads string"},
           {R("", "S"), R(""), "another name"},
           {R"({"type":"fixed","name":"F","size":1})", R"({"type":"fixed","name":"F","size":2})",
            "another name or size"},
           {F(R"(["null","R",{"type":"array","items":"int"}])"),
            F(R"(["null","R",{"type":"array","items":"string"}])"), "no branch"},
       }) {
    const absl::Status status = Reads(pair.reader, pair.writer);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << pair.reader << pair.writer;
    EXPECT_THAT(std::string(status.message()), HasSubstr(pair.reason)) << pair.reader;
  }
}

// What a failed branch of a union has assumed of itself does not count afterwards.
TEST(AvroResolution, ABranchThatFailsLeavesNoAssumptionBehind) {
  const std::string recursive_bad =
      R"({"type":"record","name":"a.N","fields":[{"name":"next","type":["null","a.N"]},
          {"name":"value","type":"int"}]})";
  const std::string recursive_writer =
      R"({"type":"record","name":"N","fields":[{"name":"next","type":["null","N"]},
          {"name":"value","type":"string"}]})";
  EXPECT_FALSE(Reads(F("[\"null\"," + recursive_bad + "]"), F(recursive_writer)).ok());
}

TEST(AvroResolution, CirclesOfDifferentLengthEndAndDoNotOverflow) {
  const auto circle = [](int length, const std::string& space) {
    std::string text = "\"" + space + "0.R\"";
    for (int i = length - 1; i >= 0; --i) {
      text = R"({"type":"record","name":")" + space + std::to_string(i) +
             R"(.R","fields":[{"name":"f","type":)" + text + "}]}";
    }
    return text;
  };
  EXPECT_TRUE(Reads(circle(7, "a"), circle(5, "b")).ok());
  EXPECT_THAT(std::string(Reads(circle(97, "a"), circle(89, "b")).message()),
              HasSubstr("too deeply"));
}

}  // namespace
}  // namespace postbox::emulator
