#include "extension/rules/fair_share.h"

#include <gtest/gtest.h>

#include <vector>

namespace postbox::pubsub {
namespace {

TEST(FairShare, AUserWhoIsAloneGetsEverything) {
  EXPECT_EQ(MayTake(900, 1, 0, 0), 900u);
  EXPECT_EQ(MayTake(900, 1, 850, 850), 50u);
  EXPECT_EQ(MayTake(900, 5, 0, 0), 900u);
  EXPECT_EQ(MayTake(900, 5, 500, 500), 400u);
}

TEST(FairShare, AUserAmongOthersHoldsTwiceWhatIsFree) {
  EXPECT_EQ(MayTake(900, 5, 300, 0), 400u);
  EXPECT_EQ(MayTake(900, 5, 700, 400), 0u);
  EXPECT_EQ(MayTake(900, 5, 720, 360), 0u) << "two with two fifths each";
  EXPECT_EQ(MayTake(900, 5, 690, 345), 25u);
}

TEST(FairShare, WhoComesLaterFindsSomethingAlthoughTheOthersHoldAll) {
  EXPECT_EQ(MayTake(800, 2, 800, 800), 0u);
  EXPECT_EQ(MayTake(800, 2, 800, 0), 100u);
  EXPECT_EQ(MayTake(800, 2, 850, 50), 50u);
  EXPECT_EQ(MayTake(800, 2, 900, 100), 0u);
  EXPECT_EQ(MayTake(3, 20, 3, 0), 1u) << "one at least";
}

TEST(FairShare, TogetherTheyHoldLittleMoreThanThereIs) {
  constexpr std::size_t kPlaces = 20'000;
  for (std::size_t users = 2; users <= 40; ++users) {
    std::vector<std::size_t> held(users);
    std::size_t all = 0;
    for (std::size_t& user : held) {
      const std::size_t more = MayTake(kPlaces, users, all, user);
      EXPECT_GT(more, 0u);
      user += more;
      all += more;
      EXPECT_EQ(MayTake(kPlaces, users, all, user), 0u);
    }
    EXPECT_LE(all, kPlaces + kPlaces / kGuaranteedPart);
  }
}

}  // namespace
}  // namespace postbox::pubsub
