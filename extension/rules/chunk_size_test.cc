#include "extension/rules/chunk_size.h"

#include <gtest/gtest.h>

namespace postbox {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Full chunks of rows that take this time each.
void RunChunks(ChunkSize* size, int chunks, microseconds row) {
  for (int i = 0; i < chunks; ++i) size->Done(size->rows(), size->rows() * row);
}

TEST(ChunkSizeTest, GrowsToTheGreatestSizeWhileRowsAreFast) {
  ChunkSize size(milliseconds(200));
  EXPECT_EQ(size.rows(), ChunkSize::kFirst);
  RunChunks(&size, 3, microseconds(1));
  EXPECT_EQ(size.rows(), 650) << "100, 200, 400, and then by steps";
  RunChunks(&size, 100, microseconds(1));
  EXPECT_EQ(size.rows(), ChunkSize::kMost);
}

TEST(ChunkSizeTest, StaysBelowTheCeiling) {
  ChunkSize size(milliseconds(200));
  for (int i = 0; i < 100; ++i) {
    RunChunks(&size, 1, microseconds(100));
    EXPECT_LE(size.rows() * microseconds(100), milliseconds(200));
  }
  EXPECT_GT(size.rows() * microseconds(100), milliseconds(100));
}

TEST(ChunkSizeTest, ShrinksAtOnceToWhatFitsIntoHalfOfTheCeiling) {
  ChunkSize size(milliseconds(200));
  RunChunks(&size, 100, microseconds(1));
  size.Done(5000, milliseconds(2000));
  EXPECT_EQ(size.rows(), 250);
}

TEST(ChunkSizeTest, HasOneRowIfThatIsTooSlow) {
  ChunkSize size(milliseconds(200));
  RunChunks(&size, 5, std::chrono::seconds(1));
  EXPECT_EQ(size.rows(), 1);
  size.GaveWay();
  EXPECT_EQ(size.rows(), 1);
}

TEST(ChunkSizeTest, DoesNotGrowByChunksThatAreNotFull) {
  ChunkSize size(milliseconds(200));
  for (int i = 0; i < 10; ++i) size.Done(10, microseconds(10));
  EXPECT_EQ(size.rows(), ChunkSize::kFirst);
}

TEST(ChunkSizeTest, HalvesWhenItGivesWay) {
  ChunkSize size(milliseconds(200));
  size.GaveWay();
  EXPECT_EQ(size.rows(), ChunkSize::kFirst / 2);
}

}  // namespace
}  // namespace postbox
