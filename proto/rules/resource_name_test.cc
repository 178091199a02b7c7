#include "proto/rules/resource_name.h"

#include <gtest/gtest.h>

#include <string>

#include "proto/rules/utf8.h"

namespace postbox::pubsub {
namespace {

TEST(ResourceName, AShortIdIsCompletedAndAFullNameStays) {
  EXPECT_EQ(TopicName("shop", "catalog.video.events"), "projects/shop/topics/catalog.video.events");
  EXPECT_EQ(TopicName("shop", "projects/other/topics/orders"), "projects/other/topics/orders");
  EXPECT_EQ(SubscriptionName("shop", "orders.reader"), "projects/shop/subscriptions/orders.reader");
  EXPECT_EQ(SubscriptionName("shop", "projects/other/subscriptions/s-1"),
            "projects/other/subscriptions/s-1");
}

TEST(ResourceName, WhatPubSubAllowsIsTaken) {
  for (const char* good :
       {"abc", "Az9-_.~+%", "projects/p/topics/abc", "projects/example.com:p/topics/abc"}) {
    EXPECT_EQ(CheckTopicName(good), "") << good;
  }
  EXPECT_EQ(CheckTopicName(std::string(255, 'a')), "");
  EXPECT_EQ(CheckSubscriptionName("projects/p/subscriptions/abc"), "");
}

TEST(ResourceName, WhatPubSubRefusesIsRefusedWithTheRule) {
  const auto expect = [](const std::string& name, const std::string& part) {
    EXPECT_NE(CheckTopicName(name).find(part), std::string::npos)
        << name << ": " << CheckTopicName(name);
  };
  expect("", "is empty");
  expect("ab", "has 2 characters, Pub/Sub allows 3 to 255");
  expect(std::string(256, 'a'), "has 256 characters");
  expect("1abc", "does not start with a letter");
  expect(".abc", "does not start with a letter");
  expect("abc def", "character that Pub/Sub does not allow");
  expect("abc\xC3\xA9", "character that Pub/Sub does not allow");
  expect("google.events", "starts with \"goog\"");
  expect("a/b", "neither an id nor of the form projects/PROJECT/topics/ID");
  expect("projects/p/subscriptions/abc", "not of the form projects/PROJECT/topics/ID");
  expect("projects/p/topics/", "has 0 characters");
  expect("projects/p", "not of the form");
  expect("projects//topics/abc", "no project id");
  expect("projects/p q/topics/abc", "project id");
  expect("projects/p/topics/ab", "has 2 characters");
  expect("projects/p/topics/a/b/c", "character that Pub/Sub does not allow");
}

TEST(ResourceName, AProjectIdMustBeGivenAndLookLikeOne) {
  EXPECT_EQ(CheckProjectId("postbox-dev"), "");
  EXPECT_EQ(CheckProjectId("123456"), "");
  EXPECT_NE(CheckProjectId(""), "");
  EXPECT_NE(CheckProjectId("a/b"), "");
}

TEST(ResourceName, TopicsOfTheConventionGiveNoWarning) {
  for (const char* good :
       {"catalog.video.events", "catalog.video.events.dlq", "feed.user-profile.commands",
        "projects/p/topics/catalog.video.events"}) {
    EXPECT_EQ(CheckTopicConvention(good), "") << good;
  }
  for (const char* bad :
       {"events", "video.events", "a.b.c.d", "Catalog.video.events", "catalog.video_x.events",
        "catalog..events", "catalog.video.", ".video.events", "catalog.1video.events"}) {
    EXPECT_NE(CheckTopicConvention(bad).find("<domain>.<aggregate>.<category>"), std::string::npos)
        << bad;
  }
}

TEST(ResourceName, SubscriptionsOfTheConventionGiveNoWarning) {
  for (const char* good :
       {"catalog.video.events.catalog-reader", "catalog.video.events.dlq-monitor",
        "catalog.video.events.dlq.ops-monitor",
        "projects/p/subscriptions/catalog.video.events.search-indexer"}) {
    EXPECT_EQ(CheckSubscriptionConvention(good), "") << good;
  }
  for (const char* bad :
       {"reader", "catalog.video.events", "catalog.video.events.reader", "a.b.c.d.e-f",
        "catalog.video.events.-reader", "catalog.video.events.Reader-X"}) {
    EXPECT_NE(CheckSubscriptionConvention(bad).find("<topic>.<service>-<role>"), std::string::npos)
        << bad;
  }
}

TEST(ResourceName, WhatIsSaidOfABadNameIsShortAndValidText) {
  std::string accents = "a";
  for (int i = 0; i < 1000; ++i) accents += "\xC3\xA9";
  for (const std::string& bad : {accents, "projects/p/topics/" + accents, "projects/" + accents,
                                 accents + "/" + accents, std::string("two\nlines")}) {
    for (const std::string& problem :
         {CheckTopicName(bad), CheckSubscriptionName(bad), CheckProjectId(bad),
          CheckTopicConvention(bad), CheckSubscriptionConvention(bad)}) {
      EXPECT_TRUE(IsValidUtf8(problem)) << problem;
      EXPECT_LT(problem.size(), 700U) << problem;
      EXPECT_EQ(problem.find('\n'), std::string::npos) << problem;
    }
  }
}

TEST(ResourceName, ABetterTopicIdHasTheWordsOfTheOldOneAndFollowsTheConvention) {
  const auto expect = [](const std::string& name, const std::string& better) {
    EXPECT_EQ(BetterTopicId(name), better) << name;
    const bool whole = better.find('<') == std::string::npos;
    EXPECT_TRUE(!whole || CheckTopicConvention(better).empty()) << name;
  };
  expect("Catalog.Video_Item.Events", "catalog.video-item.events");
  expect("catalog-video-events", "catalog.video.events");
  expect("catalogVideoItemEvents2", "catalog.video-item.events2");
  expect("shop_orders_2", "shop.orders-2.events");
  expect("video-events", "<domain>.video.events");
  expect("orders", "<domain>.orders.events");
  expect("shop_order_events_dlq", "shop.order.events.dlq");
  expect("projects/p/topics/shop-order-events", "shop.order.events");
  expect("a.b.c.d.e", "a.b-c-d.e");
}

TEST(ResourceName, ABetterSubscriptionIdBeginsWithItsTopic) {
  const std::string topic = "projects/p/topics/catalog.video.events";
  const auto expect = [](const std::string& name, const std::string& of,
                         const std::string& better) {
    EXPECT_EQ(BetterSubscriptionId(name, of), better) << name;
    EXPECT_EQ(CheckSubscriptionConvention(better), "") << name;
  };
  expect("search_indexer", topic, "catalog.video.events.search-indexer");
  expect("catalog-video-events-SearchIndexer", topic, "catalog.video.events.search-indexer");
  expect("search", topic, "catalog.video.events.search-reader");
  expect("shop-order-events-mailer", "shop-order-events", "shop.order.events.mailer-reader");
  expect("dead-ones", "catalog.video.events.dlq", "catalog.video.events.dlq.dead-ones");
  EXPECT_EQ(BetterSubscriptionId("catalog.video.events", topic),
            "catalog.video.events.<service>-reader");
}

TEST(ResourceName, ANameOfASchemaIsCompletedToo) {
  EXPECT_EQ(SchemaName("shop", "order-event"), "projects/shop/schemas/order-event");
  EXPECT_EQ(CheckSchemaName("projects/shop/schemas/order-event"), "");
  EXPECT_NE(CheckSchemaName("projects/shop/topics/order-event"), "");
}

}  // namespace
}  // namespace postbox::pubsub
