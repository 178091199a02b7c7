#include "worker/publisher/table/claim_floor.h"

#include <gtest/gtest.h>

namespace postbox::publisher {
namespace {

constexpr auto kTick = ClaimFloor::kRecent;

// A floor that has seen seq up to 100, all of them long ago, and nothing that waits.
ClaimFloor Settled(ClaimFloor::TimePoint* now) {
  ClaimFloor floor;
  floor.Seen(100);
  for (int i = 0; i < 3; ++i, *now += kTick) floor.Found(*now, std::nullopt);
  return floor;
}

TEST(ClaimFloor, RisesToTheFirstRowThatWaits) {
  ClaimFloor::TimePoint now{};
  ClaimFloor floor = Settled(&now);
  EXPECT_EQ(floor.seq(), 100);
  floor.Clear();
  floor.Found(now, 40);
  EXPECT_EQ(floor.seq(), 39);
}

TEST(ClaimFloor, DoesNotPassWhatIsRecent) {
  ClaimFloor::TimePoint now{};
  ClaimFloor floor = Settled(&now);
  floor.Seen(200);
  floor.Found(now, std::nullopt);
  EXPECT_EQ(floor.seq(), 100) << "a transaction may have taken 150 and not committed yet";
  floor.Found(now + kTick, std::nullopt);
  floor.Found(now + kTick + kTick, std::nullopt);
  EXPECT_EQ(floor.seq(), 200);
}

TEST(ClaimFloor, AWalkBeginsAtTheStartNowAndThen) {
  ClaimFloor::TimePoint now{};
  ClaimFloor floor = Settled(&now);
  EXPECT_TRUE(floor.Look(now, ClaimFloor::kLookInterval));
  EXPECT_EQ(floor.seq(), 0);
  floor.Found(now, std::nullopt);
  EXPECT_EQ(floor.seq(), 100);
  now += ClaimFloor::kLookAgain;
  EXPECT_FALSE(floor.Look(now, ClaimFloor::kLookInterval));
  EXPECT_EQ(floor.seq(), 100);
  EXPECT_TRUE(floor.Look(now, ClaimFloor::kLookAgain));
  EXPECT_TRUE(floor.Look(now + ClaimFloor::kLookInterval, ClaimFloor::kLookInterval));
}

TEST(ClaimFloor, AWalkFromTheStartThatTakesLongIsRare) {
  ClaimFloor::TimePoint now{};
  ClaimFloor floor = Settled(&now);
  EXPECT_TRUE(floor.Look(now, ClaimFloor::kLookAgain));
  floor.Took(std::chrono::milliseconds(100));
  EXPECT_FALSE(floor.Look(now + std::chrono::milliseconds(999), ClaimFloor::kLookAgain));
  EXPECT_TRUE(floor.Look(now + std::chrono::milliseconds(1000), ClaimFloor::kLookAgain));
}

}  // namespace
}  // namespace postbox::publisher
