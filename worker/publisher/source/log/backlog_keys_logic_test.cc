#include "worker/publisher/source/log/backlog_keys_logic.h"

#include <gtest/gtest.h>

namespace postbox::publisher {
namespace {

constexpr auto kRange = static_cast<std::int64_t>(BacklogKeys::kKeysOfRange);
const XidSnapshot kEarly{10, 10, {}};
const XidSnapshot kLater{20, 20, {}};

std::string Key(std::int64_t n) { return "key-" + std::to_string(n); }

void AddKeys(BacklogKeys* keys, std::int64_t first, std::int64_t last,
             const XidSnapshot& snapshot = kEarly) {
  for (std::int64_t seq = first; seq <= last; ++seq) keys->Add(seq, Key(seq));
  keys->NoteSeen(first, last, snapshot);
}

LogPosition ReadUpTo(std::int64_t seq, const XidSnapshot& seen = kLater) {
  return LogPosition::At({seq, seen, seen.xmax});
}

TEST(BacklogKeys, KeyWaitsUntilTheRangeOfItsLastEventIsPublished) {
  BacklogKeys keys;
  AddKeys(&keys, 1, 3 * kRange);
  keys.Add(2 * kRange + 7, Key(5));
  EXPECT_FALSE(keys.Forget(ReadUpTo(kRange - 1)));
  EXPECT_TRUE(keys.MustWait(Key(5)));
  EXPECT_TRUE(keys.MustWait(Key(6)));
  EXPECT_TRUE(keys.Forget(ReadUpTo(kRange)));
  EXPECT_FALSE(keys.Forget(ReadUpTo(kRange))) << "only once";
  EXPECT_TRUE(keys.MustWait(Key(5))) << "it has a later one";
  EXPECT_FALSE(keys.MustWait(Key(6)));
  EXPECT_TRUE(keys.MustWait(Key(kRange + 1)));
  EXPECT_TRUE(keys.Forget(ReadUpTo(3 * kRange)));
  EXPECT_FALSE(keys.MustWait(Key(5)));
}

TEST(BacklogKeys, LateRowsKeepTheirRangeUntilThePositionHasThem) {
  BacklogKeys keys;
  AddKeys(&keys, 1, 2 * kRange);
  AddKeys(&keys, 3, 3, kLater);
  EXPECT_FALSE(keys.Forget(ReadUpTo(kRange, kEarly))) << "its snapshot did not show the late one";
  EXPECT_TRUE(keys.MustWait(Key(3)));
  EXPECT_TRUE(keys.Forget(ReadUpTo(kRange, kLater)));
  EXPECT_FALSE(keys.MustWait(Key(3)));
  AddKeys(&keys, 4, 4, kLater);
  EXPECT_TRUE(keys.MustWait(Key(4))) << "a range that was forgotten has keys again";
  EXPECT_FALSE(keys.Forget(LogPosition()));
}

TEST(BacklogKeys, RowsOfATransactionThatThePositionHasLeftOutKeepTheirRange) {
  BacklogKeys keys;
  AddKeys(&keys, 1, 2 * kRange, kEarly);
  EXPECT_FALSE(keys.Forget(ReadUpTo(kRange, kLater.Without(kEarly.xmin - 1))));
  EXPECT_TRUE(keys.MustWait(Key(1)));
  EXPECT_TRUE(keys.Forget(ReadUpTo(kRange, kLater)));
}

TEST(BacklogKeys, EventsBehindOneThatWaitsDoSoToo) {
  BacklogKeys keys;
  AddKeys(&keys, 1, 2 * kRange);
  keys.Withhold(900'001, Key(1));
  keys.Withhold(900'002, Key(2 * kRange));
  keys.Withhold(900'003, "of another worker, whose backlog is published");
  EXPECT_FALSE(keys.MayGo(900'001));
  EXPECT_TRUE(keys.MayGo(900'003));
  EXPECT_TRUE(keys.MayGo(900'004)) << "it is gone";
  EXPECT_TRUE(keys.MustWait("of another worker, whose backlog is published"));
  EXPECT_TRUE(keys.Forget(ReadUpTo(kRange)));
  EXPECT_TRUE(keys.MayGo(900'001));
  EXPECT_FALSE(keys.MayGo(900'002));
  EXPECT_TRUE(keys.MustWait(Key(1)));
  keys.Release({900'001, 900'003});
  EXPECT_FALSE(keys.MustWait(Key(1)));
  EXPECT_FALSE(keys.MustWait("of another worker, whose backlog is published"));
  EXPECT_TRUE(keys.MustWait(Key(2 * kRange)));
}

TEST(BacklogKeys, EventsWithOneSeqWaitForEachOther) {
  BacklogKeys keys;
  AddKeys(&keys, 1, 2 * kRange);
  keys.Withhold(900'001, Key(1));
  keys.Withhold(900'001, Key(2 * kRange));
  EXPECT_TRUE(keys.Forget(ReadUpTo(kRange)));
  EXPECT_FALSE(keys.MayGo(900'001));
  keys.Release({900'001, 900'001});
  EXPECT_FALSE(keys.MustWait(Key(1)));
}

TEST(BacklogKeys, TellsKeysApartInEveryRangeOfAMillion) {
  BacklogKeys keys;
  constexpr std::int64_t kMany = 1'000'000;
  AddKeys(&keys, 1, kMany);
  int taken = 0;
  for (std::int64_t n = kMany + 1; n <= kMany + 200'000; ++n)
    taken += keys.MustWait(Key(n)) ? 1 : 0;
  EXPECT_LT(taken, 10);
  for (std::int64_t n = 1; n <= kMany; n += 1000) ASSERT_TRUE(keys.MustWait(Key(n))) << n;
}

}  // namespace
}  // namespace postbox::publisher
