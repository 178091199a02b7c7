#include "worker/publisher/base/claimed_event.h"

#include <gtest/gtest.h>

namespace postbox::publisher {
namespace {

TEST(ClaimedEvent, OneThatIsUsedAgainCarriesNothingOfTheLastOne) {
  const auto owner = std::make_shared<int>(1);
  EventPointer event = NewEvent();
  const ClaimedEvent* const address = event.get();
  event->topic = "projects/p/topics/t";
  event->ordering_key = "key";
  event->encoded = std::string(100, 'e');
  event->status = pubsub::PublishStatus::kRejected;
  event->error = "UNAVAILABLE: no";
  event->id = "id";
  event->key = "key";
  event->attempts = 3;
  event->seq = 4;
  event->handle = 5;
  event->leaving = true;
  event->owner = owner;
  event.reset();
  EXPECT_EQ(owner.use_count(), 1) << "what it referred to is free at once";

  event = NewEvent();
  ASSERT_EQ(event.get(), address);
  EXPECT_EQ(event->topic, "");
  EXPECT_EQ(event->ordering_key, "");
  EXPECT_EQ(event->encoded, "");
  EXPECT_EQ(event->status, pubsub::PublishStatus::kUnknown);
  EXPECT_EQ(event->error, "");
  EXPECT_EQ(event->id, "");
  EXPECT_EQ(event->key, "");
  EXPECT_EQ(event->attempts, 0);
  EXPECT_EQ(event->seq, 0);
  EXPECT_EQ(event->handle, 0u);
  EXPECT_FALSE(event->leaving);
  EXPECT_EQ(event->owner, nullptr);
}

TEST(ClaimedEvent, TheRoomOfALargeMessageIsGivenBack) {
  EventPointer event = NewEvent();
  event->encoded = std::string(1'000'000, 'e');
  event.reset();
  event = NewEvent();
  EXPECT_LT(event->encoded.capacity(), 10'000u);
}

}  // namespace
}  // namespace postbox::publisher
