// For tests: a database that emitters write to, and the reads of a log that SQL does.
#ifndef POSTBOX_WORKER_PUBLISHER_STORE_LOG_HISTORY_H_
#define POSTBOX_WORKER_PUBLISHER_STORE_LOG_HISTORY_H_

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "worker/publisher/store/log_position_logic.h"

namespace postbox::publisher {

struct Row {
  FullXid txid;
  int64_t seq;
  int key;
};

// A database that hands out transaction ids and sequence numbers and takes snapshots as Postgres
// does: xmax is the latest completed transaction + 1.
class History {
 public:
  FullXid Begin() {
    running_.insert(next_xid_);
    return next_xid_++;
  }
  void Emit(FullXid txid, int key) { rows_.push_back({txid, ++last_seq_, key}); }
  void Commit(FullXid txid) {
    End(txid);
    committed_.insert(txid);
  }
  void Abort(FullXid txid) { End(txid); }

  int64_t last_seq() const { return last_seq_; }
  FullXid next_xid() const { return next_xid_; }
  const std::set<FullXid>& running() const { return running_; }
  const std::vector<Row>& rows() const { return rows_; }
  const Row& RowOf(int64_t seq) const {
    return *std::find_if(rows_.begin(), rows_.end(),
                         [&](const Row& row) { return row.seq == seq; });
  }
  bool committed(FullXid txid) const { return committed_.contains(txid); }

  XidSnapshot Snapshot() const {
    XidSnapshot snapshot;
    snapshot.xmax = latest_completed_ + 1;
    snapshot.xmin = snapshot.xmax;
    for (FullXid xid : running_) {
      if (xid < snapshot.xmax) snapshot.xip.push_back(xid);
    }
    if (!snapshot.xip.empty()) snapshot.xmin = snapshot.xip.front();
    return snapshot;
  }

 private:
  void End(FullXid txid) {
    running_.erase(txid);
    latest_completed_ = std::max(latest_completed_, txid);
  }
  FullXid next_xid_ = 3;
  FullXid latest_completed_ = 2;
  int64_t last_seq_ = 0;
  std::set<FullXid> running_;
  std::set<FullXid> committed_;
  std::vector<Row> rows_;
};

// The rows that a position has not read at a moment, in the order in which they are read. If a
// transaction is left out, those that are late.
inline std::vector<Row> Unread(const History& history, const LogPosition& position,
                               const LogMoment& moment, size_t limit) {
  std::vector<Row> chunk;
  auto take = [&](auto&& wanted, int64_t after, int64_t upto) {
    for (const Row& row : history.rows()) {  // in order of seq
      if (chunk.size() == limit) return;
      if (row.seq <= after || row.seq > upto) continue;
      if (!history.committed(row.txid) || !moment.Sees(row.txid)) continue;
      if (wanted(row)) chunk.push_back(row);
    }
  };
  for (const LateRead& read : position.LateReads(moment)) {
    take(
        [&](const Row& row) {
          return std::count(read.txids.begin(), read.txids.end(), row.txid) > 0 ||
                 (row.txid >= read.range_begin && row.txid < read.range_end);
        },
        read.after, read.upto);
  }
  if (moment.left_out == 0) take([](const Row&) { return true; }, position.from(), moment.hwm);
  return chunk;
}

// A random history of up to eight transactions at a time. Each locks the keys that it emits for
// until it ends, as emitters of one aggregate do.
class RandomHistory {
 public:
  explicit RandomHistory(unsigned seed) : random_(seed) {}

  const History& history() const { return history_; }
  bool Chance(int percent) { return Number(100) < percent; }
  int Number(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }

  // One transaction begins, emits or ends.
  void Happen() {
    const int action = Number(100);
    if (action < 20 && locks_.size() < 8) {
      locks_[history_.Begin()];
    } else if (action < 75 && !locks_.empty()) {
      Emit();
    } else if (!locks_.empty()) {
      // The oldest one lives long.
      auto it = Chance(95) ? Any() : locks_.begin();
      if (it == locks_.begin() && Chance(70)) return;
      Chance(80) ? history_.Commit(it->first) : history_.Abort(it->first);
      Forget(it);
    }
  }

  bool AllEnded() const { return locks_.empty(); }
  void CommitOne() {
    history_.Commit(locks_.begin()->first);
    Forget(locks_.begin());
  }

  // With things happening between the three reads unless `quiet`.
  LogMoment Moment(bool quiet) {
    LogMoment moment;
    moment.hwm = history_.last_seq();
    for (int i = quiet ? 0 : Number(5); i > 0; --i) Happen();
    moment.snapshot = history_.Snapshot();
    for (int i = quiet ? 0 : Number(5); i > 0; --i) Happen();
    moment.next_xid = history_.next_xid();
    return moment;
  }

 private:
  using Locks = std::map<FullXid, std::set<int>>;
  Locks::iterator Any() {
    return std::next(locks_.begin(), Number(static_cast<int>(locks_.size())));
  }
  void Forget(Locks::iterator it) {
    for (int key : it->second) locked_.erase(key);
    locks_.erase(it);
  }
  void Emit() {
    auto it = Any();
    const int key = Number(6);
    if (!it->second.contains(key) && locked_.contains(key)) return;
    locked_.insert(key);
    it->second.insert(key);
    history_.Emit(it->first, key);
  }

  std::mt19937 random_;
  History history_;
  Locks locks_;
  std::set<int> locked_;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_STORE_LOG_HISTORY_H_
