#include "extension/rules/turns.h"

#include <gtest/gtest.h>

#include <vector>

namespace postbox {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong = kTurn * 2;

TEST(TurnsTest, NobodyYieldsWhileAllAreBusyAndNoTurnIsOver) {
  EXPECT_EQ(WhoYields({}), kNobodyYields);
  const std::vector<Turn> turns = {{.held = kTurn - milliseconds(1)}, {.idle = milliseconds(999)}};
  EXPECT_EQ(WhoYields(turns), kNobodyYields);
}

TEST(TurnsTest, AWorkerThatIsNotTheOnlyOneOfItsDatabaseYieldsFirst) {
  const std::vector<Turn> turns = {
      {.held = kLong, .idle = kLong}, {.spare = true}, {.held = kLong}};
  EXPECT_EQ(WhoYields(turns), 1u);
}

TEST(TurnsTest, OfTheIdleOnesYieldsTheOneThatIsIdleForLongest) {
  const std::vector<Turn> turns = {
      {.held = kLong}, {.held = kLong, .idle = kIdle}, {.held = kIdle * 2, .idle = kIdle * 2}};
  EXPECT_EQ(WhoYields(turns), 2u);
}

TEST(TurnsTest, IfAllAreBusyTheOneYieldsThatHasItsSlotForLongest) {
  const std::vector<Turn> turns = {{.held = kTurn}, {.held = kLong}, {.held = kTurn / 2}};
  EXPECT_EQ(WhoYields(turns), 1u);
}

TEST(TurnsTest, WhoWasAskedIsNotAskedAgain) {
  std::vector<Turn> turns = {{.held = kLong, .idle = kLong}, {.held = kTurn}};
  turns[0].leaving = true;
  EXPECT_EQ(WhoYields(turns), 1u);
  turns[1].leaving = true;
  EXPECT_EQ(WhoYields(turns), kNobodyYields);
}

}  // namespace
}  // namespace postbox
