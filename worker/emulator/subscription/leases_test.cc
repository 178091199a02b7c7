#include "worker/emulator/subscription/leases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/emulator/subscription/ordered_key.h"
#include "worker/emulator/subscription/test_entry.h"

namespace postbox::emulator {
namespace {

using ::testing::ElementsAre;

const absl::Time kStart = absl::FromUnixSeconds(1'700'000'000);

TEST(Leases, TheyEndAtTheirTimesAndEarlierMessagesComeFirst) {
  OpenStreams streams;
  Leases leases(&streams);
  Entry first = EntryWith(1), second = EntryWith(2), third = EntryWith(3);
  leases.Grant(&third, {1, nullptr, kStart});
  leases.Grant(&first, {1, nullptr, kStart + absl::Seconds(1)});
  leases.Grant(&second, {2, nullptr, kStart + absl::Seconds(2)});
  EXPECT_EQ(leases.first_end(), kStart);
  EXPECT_THAT(leases.EndedBy(kStart + absl::Seconds(1)), ElementsAre(&first, &third));
  leases.Extend(&third, kStart + absl::Seconds(3));
  EXPECT_THAT(leases.EndedBy(kStart + absl::Seconds(1)), ElementsAre(&first));
  EXPECT_THAT(leases.HeldBy(1), ElementsAre(&first, &third));
  leases.End(&first);
  EXPECT_EQ(first.state, Entry::State::kWaiting);
  EXPECT_EQ(leases.size(), 2u);
}

TEST(Leases, TheStreamAndTheKeyKnowWhatIsLeased) {
  OpenStreams streams;
  Leases leases(&streams);
  OrderedKey key("k", /*deliver_twice=*/false);
  Entry entry = EntryWith(1, 100);
  entry.key = &key;
  key.Push(&entry);
  const StreamId id = streams.Open({2, 150}, absl::Seconds(10));
  StreamState* stream = streams.Find(id);
  leases.Grant(&entry, {id, stream, kStart});
  EXPECT_EQ(key.owner(), id);
  EXPECT_TRUE(stream->Budget().Admits(50));
  EXPECT_FALSE(stream->Budget().Admits(51));
  leases.End(&entry);
  EXPECT_FALSE(key.leased());
  EXPECT_TRUE(stream->Budget().Admits(1000)) << "a stream that holds nothing";
}

TEST(Leases, ALeaseOutlivesItsStream) {
  OpenStreams streams;
  Leases leases(&streams);
  Entry entry = EntryWith(1);
  const StreamId id = streams.Open({}, absl::Seconds(10));
  leases.Grant(&entry, {id, streams.Find(id), kStart});
  ASSERT_NE(streams.Close(id), nullptr);
  EXPECT_EQ(streams.Close(id), nullptr);
  EXPECT_THAT(leases.HeldBy(id), ElementsAre(&entry));
  leases.End(&entry);
  EXPECT_EQ(leases.first_end(), absl::InfiniteFuture());
}

}  // namespace
}  // namespace postbox::emulator
