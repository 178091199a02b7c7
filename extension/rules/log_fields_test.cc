#include "extension/rules/log_fields.h"

#include <gtest/gtest.h>

namespace postbox {
namespace {

TEST(LogFieldsTest, APlainValueIsWrittenAsItIs) {
  std::string line;
  AppendField("event_id", "7e57", &line);
  AppendField("event_type", "video.created", &line);
  EXPECT_EQ(line, "event_id=7e57 event_type=video.created");
}

TEST(LogFieldsTest, AFieldThatIsNotKnownIsLeftOut) {
  std::string line;
  AppendField("trace_id", "", &line);
  EXPECT_EQ(line, "");
}

TEST(LogFieldsTest, NoValueLooksLikeAnotherField) {
  std::string line;
  AppendField("aggregate_id", "a\" version=9\n\\", &line);
  EXPECT_EQ(line, "aggregate_id=\"a\\\" version=9\\u000a\\\\\"");
}

}  // namespace
}  // namespace postbox
