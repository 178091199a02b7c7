#include <gtest/gtest.h>

#include "worker/cli/console/reads.h"

namespace postbox::cli {
namespace {

JsonValue Decoded(const std::string& hex, int bytes) {
  JsonValue row = {{"payload_hex", hex}, {"bytes", bytes}};
  DecodePayload(&row);
  return row;
}

TEST(PayloadTest, JsonIsShownAsItWasWritten) {
  // {"n":1.0}
  const JsonValue row = Decoded("7b226e223a312e307d", 9);
  EXPECT_EQ(row["encoding"], "json");
  EXPECT_EQ(row["payload"], "{\"n\":1.0}");
  EXPECT_EQ(row["truncated"], false);
  EXPECT_FALSE(row.contains("payload_hex"));
}

TEST(PayloadTest, OtherTextIsTextAndBytesAreBase64) {
  EXPECT_EQ(Decoded("6869", 2)["encoding"], "text");
  EXPECT_EQ(Decoded("6869", 2)["payload"], "hi");
  EXPECT_EQ(Decoded("ff00", 2)["encoding"], "base64");
  EXPECT_EQ(Decoded("ff00", 2)["payload"], "/wA=");
  EXPECT_EQ(Decoded("680069", 3)["encoding"], "base64") << "a NUL is no text";
}

TEST(PayloadTest, APartEndsAtACharacterAndIsNoJson) {
  const JsonValue row = Decoded("5b31c3", 9);
  EXPECT_EQ(row["encoding"], "text");
  EXPECT_EQ(row["payload"], "[1");
  EXPECT_EQ(row["truncated"], true);
}

TEST(PayloadTest, NoPayloadIsNone) {
  JsonValue row = {{"payload_hex", nullptr}, {"bytes", nullptr}};
  DecodePayload(&row);
  EXPECT_FALSE(row.contains("payload"));
}

}  // namespace
}  // namespace postbox::cli
