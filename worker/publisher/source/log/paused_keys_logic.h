// The keys that have parked events, as far as a lane knows, and which of their events are on their
// way.
//
// The table of parked events is read in rounds, some keys in a step. Between rounds the lane knows
// what it parks and what it publishes itself; what other sessions add or remove, it learns in the
// next round.
//
// Of each key a seq is kept that is not above its rows: what was deleted need not be passed again
// to find the first row.
//
// Single-threaded, no Postgres.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_PAUSED_KEYS_LOGIC_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_PAUSED_KEYS_LOGIC_H_

#include <cstdint>
#include <limits>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace postbox::publisher {

class PausedKeys {
 public:
  static constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();

  bool empty() const { return before_.empty(); }
  bool contains(const std::string& key) const { return before_.contains(key); }
  // A seq that is not above the rows of the key.
  std::int64_t Before(const std::string& key) const;

  // Reading the table. Until the first round has ended, other keys may have rows, too.
  void BeginRound();
  // The first row of a key has this seq.
  void Found(const std::string& key, std::int64_t first);
  // A key that was not found, nor added meanwhile, has no row, unless one is on its way.
  void EndRound();
  bool read() const { return read_; }

  // A row was put into the table.
  void Add(const std::string& key, std::int64_t seq);

  // A transaction begins.
  void BeginStep() { handed_out_.clear(); }
  // A row is on its way. No row of its key was when the step began.
  void HandOut(const std::string& key, std::int64_t seq);
  // One has its result. `published`: it will be deleted.
  void Settle(const std::string& key, std::int64_t seq, bool published);
  std::vector<std::string> KeysOnTheirWay() const;
  // Rows, of all keys.
  std::size_t on_their_way() const;
  // The key has no row any more.
  void Gone(const std::string& key);

  // The step has failed, and it has parked and settled nothing: what it has handed out is not on
  // its way. What the table has is not known any more.
  void RollBack();
  // Nothing is known, and nothing on its way.
  void Reset();

 private:
  struct OfKey {
    int rows = 0;
    std::int64_t last = kLowest;  // the greatest seq
    bool passed = false;          // a row was added before that
  };

  std::unordered_map<std::string, std::int64_t> before_;
  std::unordered_map<std::string, OfKey> on_their_way_;
  std::unordered_set<std::string> handed_out_;  // in this step
  std::unordered_set<std::string> found_;       // in this round, and those added meanwhile
  bool in_round_ = false;
  bool read_ = false;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_PAUSED_KEYS_LOGIC_H_
