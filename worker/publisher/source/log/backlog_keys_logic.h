// The keys of a backlog, and of the events that wait for it.
//
// Keys are added in the order in which the backlog is read, and kept by ranges of seq. When all of
// a range is published, its keys are forgotten: so an event waits for the range with the last event
// of its key, and not for all of the backlog. Rows that commit late join the range in which their
// seq lies.
//
// A range is forgotten when the position has its last row, as a snapshot shows it that is not older
// than the one with which the last of its keys was read. Then the position has all rows whose keys
// were added.
//
// Single-threaded, no Postgres.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_BACKLOG_KEYS_LOGIC_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_BACKLOG_KEYS_LOGIC_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "worker/publisher/source/log/key_filter_logic.h"
#include "worker/publisher/store/log_position_logic.h"

namespace postbox::publisher {

class BacklogKeys {
 public:
  // A range has so many keys, later ones more. With a million keys it takes one of 60,000 others
  // for one of them. With 8 million keys all take 32 MiB; what comes after that shares the last
  // range, where the filter takes more and more keys for others.
  static constexpr std::size_t kKeysOfRange = 8192;

  explicit BacklogKeys(std::size_t keys_of_range = kKeysOfRange) : keys_of_range_(keys_of_range) {}

  // An event of the backlog.
  void Add(std::int64_t seq, std::string_view key);
  // Those with seqs from `first` to `last` were read with this snapshot. After their Add().
  void NoteSeen(std::int64_t first, std::int64_t last, const XidSnapshot& snapshot);
  // An event that waits.
  void Withhold(std::int64_t seq, const std::string& key);
  // Those that may go do not wait any more.
  void Release(const std::vector<std::int64_t>& seqs);

  // Whether an event of this key must wait: the backlog may have an earlier one, or one waits.
  bool MustWait(const std::string& key) const {
    return MayHave(key) || withheld_keys_.contains(key);
  }
  // Whether none of the waiting events with this seq has to wait for the backlog any more.
  bool MayGo(std::int64_t seq) const;
  // Forgets the ranges that this position has. Returns whether there were any.
  bool Forget(const LogPosition& position);

 private:
  struct Range {
    std::int64_t begin;
    std::int64_t last;  // the greatest seq that was added
    std::size_t keys = 0;
    std::optional<KeyFilter> filter{};
    XidSnapshot seen{};
  };

  bool MayHave(std::string_view key) const;
  std::size_t Capacity(std::size_t range) const;
  std::vector<Range>::iterator RangeOf(std::int64_t seq);

  std::size_t keys_of_range_;
  std::vector<Range> ranges_;  // the first one begins before all
  std::unordered_multimap<std::int64_t, std::string> withheld_;
  std::unordered_multiset<std::string> withheld_keys_;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_BACKLOG_KEYS_LOGIC_H_
