#include "worker/puller/inbox_client.h"

#include <gtest/gtest.h>

namespace postbox::puller {
namespace {

TEST(InboxClientTest, TheDetailOfAnErrorNamesItsEvent) {
  const auto read = ReadErrorDetail(R"({"event": 3, "detail": "Key (\"id\")=(1) exists."})");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->event_at, 2u);
  EXPECT_EQ(read->text, R"(Key ("id")=(1) exists.)");
  EXPECT_EQ(ReadErrorDetail(R"({"event": 1})").value().event_at, 0u);
  EXPECT_EQ(ReadErrorDetail(R"({"detail": "of no event"})").value().event_at, std::nullopt);
  EXPECT_EQ(ReadErrorDetail("{}").value().event_at, std::nullopt);
}

TEST(InboxClientTest, AnotherDetailIsNotTaken) {
  for (const char* text :
       {"", "Failing row contains (1).", "3", "[1]", "{\"event\": 0}", "{\"event\": -1}",
        "{\"event\": \"1\"}", "{\"event\": 1.5}", "{\"event\": 1", "{\"detail\": 1}",
        "{\"event\": 1, \"of\": \"a handler\"}", "{\"detail\": \"\xff\"}"}) {
    EXPECT_FALSE(ReadErrorDetail(text)) << text;
  }
  const std::string endless =
      R"({"event": 1, "detail": ")" + std::string(kMaxDetailBytes, 'x') + "\"}";
  EXPECT_FALSE(ReadErrorDetail(endless));
}

}  // namespace
}  // namespace postbox::puller
