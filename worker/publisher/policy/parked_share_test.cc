#include "worker/publisher/policy/parked_share.h"

#include <gtest/gtest.h>

namespace postbox::publisher {
namespace {

TEST(ParkedShare, ParkedEventsGetNearlyAllOfAClaimUntilNewOnesCome) {
  ParkedShare share;
  EXPECT_EQ(share.Of(800), 700u);
  share.Found(1);
  EXPECT_EQ(share.Of(800), 100u);
  share.Found(0);
  EXPECT_EQ(share.Of(800), 700u);
}

TEST(ParkedShare, AClaimOfOneEventMayBeAParkedOne) {
  ParkedShare share;
  EXPECT_EQ(share.Of(1), 1u);
  share.Found(1);
  EXPECT_EQ(share.Of(1), 1u);
}

TEST(ParkedShare, NewEventsHaveRoomInAClaimOfSeveral) {
  ParkedShare share;
  EXPECT_EQ(share.Of(2), 1u);
  EXPECT_EQ(share.Of(8), 7u);
}

}  // namespace
}  // namespace postbox::publisher
