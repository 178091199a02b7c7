#include "worker/publisher/source/claimed_event.h"

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

TEST(ClaimedEvent, WhatManyEventsKeepIsBounded) {
  const auto room = [](std::size_t bytes) {
    Events events;
    std::size_t all = 0;
    for (int i = 0; i < 10'000; ++i) {
      events.push_back(NewEvent());
      all += events.back()->encoded.capacity();
      if (bytes > 0) events.back()->encoded.assign(bytes, 'e');
    }
    return all;
  };
  room(4000);
  const std::size_t kept = room(0);
  EXPECT_GT(kept, std::size_t{15} << 20) << "room that is kept saves time";
  EXPECT_LT(kept, std::size_t{17} << 20);
  EXPECT_LT(room(0), std::size_t{17} << 20);
}

}  // namespace
}  // namespace postbox::publisher
