#include "worker/puller/log.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "worker/puller/key_queues.h"

namespace postbox::puller {
namespace {

class LogTest : public ::testing::Test {
 protected:
  LogTest() {
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(lines_);
    auto logger = std::make_shared<spdlog::logger>("test", sink);
    logger->set_pattern("%v");
    before_ = spdlog::default_logger();
    spdlog::set_default_logger(logger);
  }
  ~LogTest() override {
    LogSums(/*all=*/true);
    spdlog::set_default_logger(before_);
  }
  int Count(const std::string& part) const {
    int count = 0;
    const std::string text = lines_.str();
    for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
    return count;
  }

  std::ostringstream lines_;
  std::shared_ptr<spdlog::logger> before_;
};

TEST_F(LogTest, ATextIsCutAtACharacter) {
  EXPECT_EQ(Cut("abc", 3), "abc");
  EXPECT_EQ(Cut("abcd", 3), "abc...");
  EXPECT_EQ(Cut("ab\u00e9", 3), "ab...");
}

TEST_F(LogTest, ALineIsShortHoweverLongItsTextsAre) {
  LogWarn("failed",
          {{"error", std::string(10'000'000, 'x')}, {"event_id", std::string(9000, 'y')}});
  EXPECT_LT(lines_.str().size(), 3000u);
  EXPECT_EQ(Count("xxx..."), 1);
}

TEST_F(LogTest, AFailureThatGoesOnIsSummed) {
  for (int i = 0; i < 1000; ++i) {
    LogRepeated("event failed", {{"subscription", "a"}, {"sqlstate", "23505"}, {"event", i}});
  }
  LogRepeated("event failed", {{"subscription", "a"}, {"sqlstate", "55P03"}});
  EXPECT_EQ(Count("sqlstate=23505"), kSameLines);
  EXPECT_EQ(Count("sqlstate=55P03"), 1);
  LogSums();
  EXPECT_EQ(Count("repeated"), 0) << "the pause is not over";
  LogSums(/*all=*/true);
  EXPECT_EQ(Count("event=999 repeated=990"), 1);
}

TEST_F(LogTest, ALineIsUtf8WhateverAValueIs) {
  LogWarn("failed", {{"key", "a\xff"}, {"error", "no\xff way"}});
  EXPECT_EQ(Count("key=\"a\xEF\xBF\xBD\" error=\"no\xEF\xBF\xBD way\""), 1) << lines_.str();
}

TEST_F(LogTest, ALineAboutAnEventHasItsFieldsAndItsTrace) {
  Delivery delivery;
  delivery.message.message_id = "m1";
  for (const auto& [name, value] : std::vector<pubsub::AttributeView>{
           {"aggregate_id", "v1"},
           {"aggregate_type", "video"},
           {"event_id", "e1"},
           {"event_type", "video.created"},
           {"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
           {"version", "7"}}) {
    delivery.message.attributes.emplace_back(name, value);
  }
  delivery.event = ParseEvent(delivery.message);
  LogWarn("failed", EventFields("reader", delivery));
  EXPECT_EQ(Count("subscription=reader event_id=e1 event_type=video.created aggregate_id=v1 "
                  "aggregate_type=video version=7 message_id=m1 "
                  "trace_id=0af7651916cd43dd8448eb211c80319c"),
            1)
      << lines_.str();
}

}  // namespace
}  // namespace postbox::puller
