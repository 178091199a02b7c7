// How many events of each kind an audit has seen: in total, and for each hour of the events' own
// time.
#ifndef POSTBOX_WORKER_CLI_AUDIT_TALLY_H_
#define POSTBOX_WORKER_CLI_AUDIT_TALLY_H_

#include <cstdint>
#include <map>
#include <string>

namespace postbox::cli {

class Tally {
 public:
  using Counts = std::map<std::string, int64_t>;  // by kind
  static constexpr int64_t kHour = 3'600'000'000;
  // An application may give any time to its events. Further hours count together.
  static constexpr size_t kMostHours = 10'000;

  // `occurred`: microseconds since 1970.
  void Add(const std::string& kind, int64_t occurred, int64_t count = 1);
  void Remove(const std::string& kind, int64_t occurred) { Add(kind, occurred, -1); }

  const Counts& total() const { return total_; }
  // By the begin of the hour; 0 has all hours for which there was no room.
  const std::map<int64_t, Counts>& hours() const { return hours_; }

 private:
  Counts total_;
  std::map<int64_t, Counts> hours_;
};

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_AUDIT_TALLY_H_
