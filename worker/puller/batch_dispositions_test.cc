#include "worker/puller/batch_dispositions.h"

#include <gtest/gtest.h>

#include <initializer_list>

#include "worker/puller/kept_text.h"

namespace postbox::puller {
namespace {

std::vector<Delivery> OfKeys(std::initializer_list<const char*> keys) {
  std::vector<Delivery> batch;
  for (const char* key : keys) {
    batch.emplace_back().message.ordering_key = Kept(key);
    batch.back().message.handle = batch.size();
  }
  return batch;
}

TEST(BatchDispositionsTest, WhatFollowsAFailureOfItsKeyIsBehindWhateverFailedFirst) {
  const auto batch = OfKeys({"k", "l", "k", "k", ""});
  BatchDispositions dispositions;
  dispositions.Begin(batch);
  dispositions.Fail(2, {.kind = Disposition::kFailed});
  EXPECT_TRUE(dispositions.Open(0));
  EXPECT_TRUE(dispositions.Behind(3));
  dispositions.Fail(0, {.kind = Disposition::kAlone});
  EXPECT_TRUE(dispositions.Behind(2));
  EXPECT_FALSE(dispositions.Open(3));
  dispositions.Settle(1, "applied");
  EXPECT_FALSE(dispositions.Open(1));
  EXPECT_TRUE(dispositions.Open(4));

  const auto taken = dispositions.Take();
  EXPECT_EQ(taken[0].kind, Disposition::kAlone);
  EXPECT_EQ(taken[1].kind, Disposition::kSettled);
  EXPECT_EQ(taken[1].outcome, "applied");
  EXPECT_EQ(taken[3].kind, Disposition::kBehind);
  dispositions.Begin(batch);
  EXPECT_TRUE(dispositions.Open(3)) << "nothing is left of the batch before";
}

}  // namespace
}  // namespace postbox::puller
