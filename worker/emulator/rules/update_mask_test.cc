#include "worker/emulator/rules/update_mask.h"

#include <gtest/gtest.h>

#include "google/pubsub/v1/pubsub.pb.h"

namespace postbox::emulator {
namespace {

TEST(UpdateMask, AFieldIsReplacedAsAWholeAndTakenAwayIfItIsNotWanted) {
  google::pubsub::v1::Subscription changed;
  changed.set_ack_deadline_seconds(10);
  (*changed.mutable_labels())["old"] = "1";
  changed.mutable_retry_policy()->mutable_minimum_backoff()->set_seconds(1);
  changed.mutable_dead_letter_policy()->set_max_delivery_attempts(5);
  google::pubsub::v1::Subscription wanted;
  (*wanted.mutable_labels())["new"] = "2";
  wanted.mutable_retry_policy()->mutable_maximum_backoff()->set_seconds(9);
  for (const char* path : {"labels", "retry_policy", "dead_letter_policy"}) {
    ReplaceField(path, wanted, &changed);
  }
  EXPECT_EQ(changed.labels().size(), 1u);
  EXPECT_EQ(changed.labels().at("new"), "2");
  EXPECT_FALSE(changed.retry_policy().has_minimum_backoff());
  EXPECT_EQ(changed.retry_policy().maximum_backoff().seconds(), 9);
  EXPECT_FALSE(changed.has_dead_letter_policy());
  EXPECT_EQ(changed.ack_deadline_seconds(), 10);
  ReplaceField("ack_deadline_seconds", wanted, &changed);
  EXPECT_EQ(changed.ack_deadline_seconds(), 0);
}

}  // namespace
}  // namespace postbox::emulator
