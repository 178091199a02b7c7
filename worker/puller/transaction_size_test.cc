#include "worker/puller/transaction_size.h"

#include <gtest/gtest.h>

namespace postbox::puller {
namespace {

using std::chrono::milliseconds;

TEST(TransactionSizeTest, ItIsHalfOfWhatFailedAndAtLeastOne) {
  TransactionSize size(500, milliseconds(0));
  EXPECT_EQ(size.limit(), 500u);
  size.Failed(30);
  EXPECT_EQ(size.limit(), 15u);
  size.Failed(1);
  EXPECT_EQ(size.limit(), 15u) << "one event alone was not too many";
  for (int i = 0; i < 10; ++i) size.Failed(15);
  EXPECT_EQ(size.limit(), 1u);
}

TEST(TransactionSizeTest, ItGrowsAfterFullTransactionsThatWereQuick) {
  TransactionSize size(30, milliseconds(1000));
  size.Failed(20);
  for (int i = 0; i < 20; ++i) {
    size.Succeeded(9, milliseconds(1));
    size.Succeeded(10, milliseconds(251));
  }
  EXPECT_EQ(size.limit(), 10u) << "not full, or not quick";
  for (const size_t limit : {20u, 30u, 30u}) {
    for (int i = 0; i < TransactionSize::kGrowAfter; ++i) {
      size.Succeeded(size.limit(), milliseconds(250));
    }
    EXPECT_EQ(size.limit(), limit);
  }
}

}  // namespace
}  // namespace postbox::puller
