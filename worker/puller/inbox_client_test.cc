#include "worker/puller/inbox_client.h"

#include <gtest/gtest.h>

namespace postbox::puller {
namespace {

TEST(InboxClientTest, TheDetailOfAnErrorNamesItsEvent) {
  const ErrorDetail read = ReadErrorDetail(R"({"event": 3, "detail": "Key (\"id\")=(1) exists."})");
  EXPECT_EQ(read.event_at, 2u);
  EXPECT_EQ(read.text, R"(Key ("id")=(1) exists.)");
  EXPECT_EQ(ReadErrorDetail(R"({"event": 1})").event_at, 0u);
  EXPECT_EQ(ReadErrorDetail(R"({"detail": "none of the events"})").event_at, std::nullopt);
}

TEST(InboxClientTest, AnotherDetailNamesNoEvent) {
  for (const char* text :
       {"", "Failing row contains (1).", "3", "[1]", "{\"event\": 0}", "{\"event\": -1}",
        "{\"event\": \"1\"}", "{\"event\": 1.5}", "{\"event\": 1"}) {
    EXPECT_EQ(ReadErrorDetail(text).event_at, std::nullopt) << text;
  }
  const std::string endless =
      R"({"event": 1, "detail": ")" + std::string(kMaxDetailBytes, 'x') + "\"}";
  EXPECT_EQ(ReadErrorDetail(endless).event_at, std::nullopt);
}

}  // namespace
}  // namespace postbox::puller
