#include "worker/emulator/broker/run_ids.h"

#include <gtest/gtest.h>

#include <string>

namespace postbox::emulator {
namespace {

const absl::Time kStartOfRun = absl::FromUnixSeconds(1'700'000'000);

TEST(RunIds, SequencesGoOnWhereAnEarlierRunHasEnded) {
  RunIds ids(kStartOfRun);
  ids.SkipTo(7);
  ids.SkipTo(5);
  EXPECT_EQ(ids.NextSequence(), 8u);
  EXPECT_EQ(ids.last_sequence(), 8u);
}

TEST(RunIds, NothingIsGivenOutTwiceInTwoRuns) {
  RunIds first(kStartOfRun);
  RunIds second(kStartOfRun + absl::Seconds(1));
  EXPECT_NE(first.MessageId(1), second.MessageId(1));
  EXPECT_NE(first.NextIncarnation(), second.NextIncarnation());
  EXPECT_NE(first.NextEtag(), second.NextEtag());
  const std::string name = first.NextName("projects/p/topics/topic", "subscription");
  EXPECT_EQ(name.rfind("projects/p/subscriptions/subscription-", 0), 0u) << name;
  EXPECT_NE(name, first.NextName("projects/p/topics/topic", "subscription"));
  EXPECT_NE(name, second.NextName("projects/p/topics/topic", "subscription"));
}

}  // namespace
}  // namespace postbox::emulator
