#include "worker/cli/console/answer_cache.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace postbox::cli {
namespace {

using std::chrono::seconds;

class AnswerCacheTest : public ::testing::Test {
 protected:
  std::optional<std::string> Get() {
    return cache_.Get(now_, [this] { return std::to_string(++made_); });
  }

  AnswerCache cache_{seconds(30)};
  AnswerCache::Clock::time_point now_{seconds(1000)};
  int made_ = 0;
};

TEST_F(AnswerCacheTest, AnAnswerIsMadeOnceInItsLife) {
  EXPECT_EQ(Get(), "1");
  now_ += seconds(29);
  EXPECT_EQ(Get(), "1");
  now_ += seconds(1);
  EXPECT_EQ(Get(), "2");
}

TEST_F(AnswerCacheTest, WhoAsksWhileItIsMadeGetsTheOldOneOrNone) {
  std::optional<std::string> meanwhile = "nothing was asked";
  const auto slowly = [&] {
    meanwhile = Get();
    return std::string("slow");
  };
  EXPECT_EQ(cache_.Get(now_, slowly), "slow");
  EXPECT_EQ(meanwhile, std::nullopt);
  now_ += seconds(60);
  cache_.Get(now_, slowly);
  EXPECT_EQ(meanwhile, "slow");
  EXPECT_EQ(made_, 0);
}

TEST_F(AnswerCacheTest, AFailureToMakeItIsNotKept) {
  EXPECT_THROW(cache_.Get(now_, []() -> std::string { throw std::runtime_error("no"); }),
               std::runtime_error);
  EXPECT_EQ(Get(), "1");
}

}  // namespace
}  // namespace postbox::cli
