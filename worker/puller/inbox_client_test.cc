#include "worker/puller/inbox_client.h"

#include <gtest/gtest.h>

namespace postbox::puller {
namespace {

TEST(InboxClientTest, TheContextOfAnErrorNamesItsEvent) {
  Delivery a;
  a.event.event_id = "a";
  Delivery b;
  b.event.event_id = "the \"b\" one";
  const std::vector<const Delivery*> events{&a, &b};
  EXPECT_EQ(NamedEvent("applying event \"a\" to inbox app.inbox", events), 0u);
  EXPECT_EQ(
      NamedEvent("SQL statement \"x\" applying event \"the \"b\" one\" to inbox app.inbox", events),
      1u);
  // A handler that applies events itself: the outer event counts.
  EXPECT_EQ(NamedEvent("applying event \"b\" to inbox o applying event \"a\" to inbox i", events),
            0u);
  EXPECT_EQ(NamedEvent("applying event \"unknown\" to inbox app.inbox", events), std::nullopt);
  EXPECT_EQ(NamedEvent("\" to inbox applying event \"", events), std::nullopt);
  EXPECT_EQ(NamedEvent("", events), std::nullopt);
}

}  // namespace
}  // namespace postbox::puller
