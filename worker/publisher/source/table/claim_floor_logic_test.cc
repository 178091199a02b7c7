#include "worker/publisher/source/table/claim_floor_logic.h"

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

using Numbers = std::vector<std::int64_t>;
constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();

TEST(ClaimFloor, AWalkLeavesOutWhatIsInHandAndWhatIsPassed) {
  ClaimFloor floor;
  SeqSet in_hand;
  EXPECT_EQ(floor.Between(0, kEnd, in_hand).after, Numbers({0}));
  EXPECT_EQ(floor.Between(0, kEnd, in_hand).upto, Numbers({kEnd}));
  in_hand.Add({1, 500});
  in_hand.Add({600, 700});
  floor.Passed({701, 800});
  floor.Passed({900, 902});  // too short
  floor.Passed({950, 1000});
  EXPECT_EQ(floor.Skip(0, in_hand), 500);
  EXPECT_EQ(floor.Skip(599, in_hand), 800);
  EXPECT_EQ(floor.Between(0, kEnd, in_hand).after, Numbers({500, 800, 1000}));
  EXPECT_EQ(floor.Between(0, kEnd, in_hand).upto, Numbers({599, 949, kEnd}));
  EXPECT_EQ(floor.Between(0, 940, in_hand).upto, Numbers({599, 940}));
  EXPECT_EQ(floor.Between(700, 960, in_hand).upto, Numbers({949}));
  EXPECT_EQ(floor.Between(600, 700, in_hand).after, Numbers());
}

TEST(ClaimFloor, ASeqThatNobodyHasSeenIsWalkedOver) {
  ClaimFloor floor;
  SeqSet in_hand;
  in_hand.Add({1, 99});
  in_hand.Add({101, 200});
  EXPECT_EQ(floor.Between(0, kEnd, in_hand).after, Numbers({99, 200}));
  EXPECT_EQ(floor.Between(0, kEnd, in_hand).upto, Numbers({100, kEnd}));
}

TEST(ClaimFloor, AWalkFromTheStartPassesAllButWhatIsInHand) {
  ClaimFloor::TimePoint now{};
  ClaimFloor floor;
  SeqSet in_hand;
  in_hand.Add({1, 10});
  floor.Passed({11, 20});
  EXPECT_EQ(floor.Skip(0, in_hand), 20);
  EXPECT_TRUE(floor.Look(now, ClaimFloor::kLookInterval));
  EXPECT_EQ(floor.Skip(0, in_hand), 10);
}

TEST(ClaimFloor, TheNumberOfRangesIsLimited) {
  ClaimFloor floor;
  SeqSet in_hand;
  for (std::int64_t n = 0; n < 5000; ++n) in_hand.Add({n * 10, n * 10 + 5});
  const ClaimFloor::Ranges ranges = floor.Between(0, kEnd, in_hand);
  EXPECT_EQ(ranges.after.size(), ClaimFloor::kMostRanges);
  EXPECT_EQ(ranges.upto.back(), kEnd);
}

}  // namespace
}  // namespace postbox::publisher
