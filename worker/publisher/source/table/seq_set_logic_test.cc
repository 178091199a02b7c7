#include "worker/publisher/source/table/seq_set_logic.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace postbox::publisher {
namespace {

TEST(SeqSet, RunsAreMadeOfConsecutiveSeqs) {
  const std::vector<std::int64_t> seqs = {1, 2, 2, 3, 5, 9, 10};
  const std::vector<SeqSet::Run> runs = SeqSet::RunsOf(seqs);
  ASSERT_EQ(runs.size(), 3U);
  EXPECT_EQ(runs[0].last, 3);
  EXPECT_EQ(runs[1].first, 5);
  EXPECT_EQ(runs[2].last, 10);
}

TEST(SeqSet, HoldsWhatASetOfNumbersHolds) {
  std::mt19937 random(7);
  SeqSet seqs;
  std::set<std::int64_t> numbers;
  const auto any = [&](int most) { return static_cast<std::int64_t>(random() % most); };
  for (int step = 0; step < 20'000; ++step) {
    const std::int64_t first = any(300), last = first + any(40);
    const std::int64_t what = any(20);
    for (std::int64_t n = what == 0 ? 0 : first; n <= last; ++n) {
      if (what >= 10) {
        numbers.insert(n);
      } else {
        numbers.erase(n);
      }
    }
    if (what == 0) {
      seqs.RemoveUpTo(last);
    } else if (what < 10) {
      seqs.Remove({first, last});
    } else {
      seqs.Add({first, last});
    }
    std::size_t runs = 0;
    for (std::int64_t n = 0; n < 345; ++n) {
      ASSERT_EQ(seqs.Contains(n), numbers.contains(n)) << step << " " << n;
      runs += numbers.contains(n) && !numbers.contains(n - 1);
    }
    ASSERT_EQ(seqs.runs(), runs) << step;
    const auto next = numbers.lower_bound(first);
    ASSERT_EQ(seqs.Next(first), next == numbers.end() ? INT64_MAX : *next);
    std::int64_t end = first - 1;
    while (numbers.contains(end + 1)) ++end;
    ASSERT_EQ(seqs.EndOfRun(first), end);
  }
}

}  // namespace
}  // namespace postbox::publisher
