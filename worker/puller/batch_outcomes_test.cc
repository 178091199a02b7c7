#include "worker/puller/batch_outcomes.h"

#include <gtest/gtest.h>

namespace postbox::puller {
namespace {

TEST(BatchOutcomesTest, EachSettledEventIsCountedByItsOutcome) {
  std::vector<Delivery> batch(7);
  for (size_t i = 0; i < batch.size(); ++i) batch[i].message.handle = i;
  batch[2].message.ordering_key = "k";
  std::vector<Disposition> dispositions;
  for (const char* outcome :
       {"applied", "duplicate", "stale", "stale", "rejected", "ignored", ""}) {
    dispositions.push_back({.kind = Disposition::kSettled, .outcome = outcome});
  }
  dispositions[6] = {.kind = Disposition::kFailed};

  StatusNumbers numbers = CountOutcomes("test", /*ordered=*/true, batch, dispositions);
  EXPECT_EQ(numbers.applied, 2);
  EXPECT_EQ(numbers.ignored, 1);
  EXPECT_EQ(numbers.duplicates, 1);
  EXPECT_EQ(numbers.stale, 2);
  EXPECT_EQ(numbers.out_of_order, 1) << "only of a key";
  EXPECT_EQ(numbers.dead_letters, 1);
  numbers = CountOutcomes("test", /*ordered=*/false, batch, dispositions);
  EXPECT_EQ(numbers.out_of_order, 0);
  EXPECT_EQ(SettledHandles(batch, dispositions), (std::vector<uint64_t>{0, 1, 2, 3, 4, 5}));
}

}  // namespace
}  // namespace postbox::puller
