#include "worker/publisher/source/table/claim_logic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace postbox::publisher {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr ClaimVerdict kClaim = ClaimVerdict::kClaim;
constexpr ClaimVerdict kPark = ClaimVerdict::kPark;
constexpr ClaimVerdict kLeave = ClaimVerdict::kLeave;

Candidate First(std::int64_t seq, std::string key, std::size_t bytes = 1) {
  return {.seq = seq, .key = std::move(key), .bytes = bytes};
}
Candidate After(std::int64_t seq, std::string key, std::int64_t predecessor) {
  return {.seq = seq, .key = std::move(key), .bytes = 1, .predecessor = predecessor};
}
Candidate AfterParked(std::int64_t seq, std::string key, std::int64_t predecessor) {
  Candidate candidate = After(seq, std::move(key), predecessor);
  candidate.predecessor_parked = true;
  return candidate;
}

TEST(ClaimSelection, TakesAKeyFromItsFirstRowOn) {
  ClaimSelection selection(10, 1000);
  EXPECT_THAT(
      selection.Judge({First(1, "a"), First(2, "b"), After(3, "a", 1), After(4, "a", 3)}, true),
      ElementsAre(kClaim, kClaim, kClaim, kClaim));
  EXPECT_EQ(selection.claimed(), 4U);
}

TEST(ClaimSelection, LeavesAKeyWhoseFirstRowIsSomebodyElses) {
  ClaimSelection selection(10, 1000);
  // Row 1 of key a is leased: it is no candidate.
  EXPECT_THAT(selection.Judge({After(2, "a", 1), First(3, "b"), After(4, "a", 2)}, true),
              ElementsAre(kLeave, kClaim, kLeave));
  EXPECT_THAT(selection.blocked_keys(), ElementsAre("a"));
}

TEST(ClaimSelection, AGapEndsTheKey) {
  ClaimSelection selection(10, 1000);
  // Row 2 is not among the candidates.
  EXPECT_THAT(selection.Judge({First(1, "a"), After(3, "a", 2), After(4, "a", 3)}, true),
              ElementsAre(kClaim, kLeave, kLeave));
}

TEST(ClaimSelection, TheChainGoesOnInTheNextChunk) {
  ClaimSelection selection(10, 1000);
  EXPECT_THAT(selection.Judge({First(1, "a")}, true), ElementsAre(kClaim));
  EXPECT_THAT(selection.Judge({After(2, "a", 1)}, true), ElementsAre(kClaim));
}

TEST(ClaimSelection, ParksBehindAParkedRowAndBehindWhatIsParkedBehindIt) {
  ClaimSelection selection(10, 1000);
  EXPECT_THAT(
      selection.Judge({AfterParked(2, "a", 1), After(3, "a", 2), First(4, "b"), After(5, "a", 3)},
                      true),
      ElementsAre(kPark, kPark, kClaim, kPark));
  EXPECT_THAT(selection.blocked_keys(), IsEmpty());
}

TEST(ClaimSelection, ARetryThatIsTakenTakesItsKeyAlong) {
  ClaimSelection selection(10, 1000);
  EXPECT_THAT(selection.Judge({First(1, "a")}, false), ElementsAre(kClaim));  // the due retry
  EXPECT_THAT(selection.Judge({AfterParked(2, "a", 1)}, true), ElementsAre(kClaim));
}

TEST(ClaimSelection, StopsAtTheNumberOfEvents) {
  ClaimSelection selection(2, 1000);
  EXPECT_THAT(
      selection.Judge({First(1, "a"), First(2, "b"), First(3, "c"), After(4, "a", 1)}, true),
      ElementsAre(kClaim, kClaim, kLeave, kLeave));
  EXPECT_TRUE(selection.full());
}

TEST(ClaimSelection, StopsAtTheBytesButTakesOneEventAlways) {
  ClaimSelection large(10, 100);
  EXPECT_THAT(large.Judge({First(1, "a", 5000), First(2, "b", 1)}, true),
              ElementsAre(kClaim, kLeave));
  ClaimSelection sum(10, 100);
  EXPECT_THAT(sum.Judge({First(1, "a", 60), First(2, "b", 60), First(3, "c", 1)}, true),
              ElementsAre(kClaim, kLeave, kLeave));
}

TEST(ClaimSelection, ARowThatIsTooLargeToBeTheFirstStopsTheClaim) {
  ClaimSelection selection(10, 100, 200);
  Candidate large = First(1, "a");
  large.bytes = 201;
  EXPECT_THAT(selection.Judge({large, First(2, "b")}, true), ElementsAre(kLeave, kLeave));
  EXPECT_TRUE(selection.full());
  EXPECT_EQ(selection.needed(), 201U);
  ClaimSelection enough(10, 100, 201);
  EXPECT_THAT(enough.Judge({large, First(2, "b")}, true), ElementsAre(kClaim, kLeave));
  EXPECT_EQ(enough.needed(), 0U);
}

TEST(ClaimSelection, ARowThatCouldNotBeLockedTakesTheRestOfItsKeyOut) {
  ClaimSelection selection(10, 1000);
  const std::vector<Candidate> chunk = {First(1, "a"), After(2, "a", 1), First(3, "b"),
                                        After(4, "a", 2)};
  std::vector<ClaimVerdict> verdicts = selection.Judge(chunk, true);
  selection.Locked(chunk, {1, 3, 4}, &verdicts);
  EXPECT_THAT(verdicts, ElementsAre(kClaim, kLeave, kClaim, kLeave));
  EXPECT_EQ(selection.claimed(), 2U);
  // And out of the chunks that follow.
  EXPECT_THAT(selection.Judge({After(5, "a", 4), After(6, "b", 3)}, true),
              ElementsAre(kLeave, kClaim));
}

TEST(ClaimSelection, BudgetComesBackForRowsThatCouldNotBeLocked) {
  ClaimSelection selection(2, 1000);
  const std::vector<Candidate> chunk = {First(1, "a"), First(2, "b")};
  std::vector<ClaimVerdict> verdicts = selection.Judge(chunk, true);
  EXPECT_TRUE(selection.full());
  selection.Locked(chunk, {2}, &verdicts);
  EXPECT_FALSE(selection.full());
  EXPECT_THAT(selection.Judge({First(3, "c")}, true), ElementsAre(kClaim));
}

// A retry can have a waiting row before it, when the two came back from different requests. Once it
// kept the walk from taking that row, and neither was ever published.
TEST(ClaimSelection, ARetryThatCannotGoYetLeavesItsKeyToTheWalk) {
  ClaimSelection selection(10, 1000);
  EXPECT_THAT(selection.Judge({After(2, "a", 1)}, false), ElementsAre(kLeave));
  EXPECT_THAT(selection.blocked_keys(), IsEmpty());
  EXPECT_THAT(selection.Judge({First(1, "a")}, true), ElementsAre(kClaim));
}

TEST(ClaimSelection, ARowThatIsLeftDoesNotTakeBackTheOnesBeforeIt) {
  ClaimSelection selection(10, 1000);
  const std::vector<Candidate> chunk = {First(1, "a"), After(3, "a", 2), First(4, "b")};
  std::vector<ClaimVerdict> verdicts = selection.Judge(chunk, true);
  selection.Locked(chunk, {1, 4}, &verdicts);
  EXPECT_THAT(verdicts, ElementsAre(kClaim, kLeave, kClaim));
}

TEST(ClaimSelection, TheListOfBlockedKeysStaysShort) {
  ClaimSelection selection(10, 1000);
  std::vector<Candidate> chunk;
  for (int i = 0; i < 500; ++i) chunk.push_back(After(1000 + i, "k" + std::to_string(i), i + 1));
  selection.Judge(chunk, true);
  EXPECT_EQ(selection.blocked_keys().size(), ClaimSelection::kMaxBlockedKeys);
}

}  // namespace
}  // namespace postbox::publisher
