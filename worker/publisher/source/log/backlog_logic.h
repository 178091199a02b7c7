// A backlog of a lane that takes more than a moment, and what is read ahead of it.
//
// The backlog ends with the transaction that it is of, if that is a long one and no longer backlog
// follows it; or else where the log ended when the lane fell behind, or if it is of late rows,
// below what is new or where the transaction of the first of them ends. What is above is read ahead
// of it, with its own position. What others wrote while a long transaction ran, and committed
// with it or later, is late as it is, and read before it.
//
// An event that was read ahead is published if its key is none of the backlog's. These keys are
// read first, and under each snapshot with which events are read ahead those of rows that have
// become visible since: emitters of one key come one after the other, so if one is seen, so are
// all earlier ones of its key, and their keys are known. The later event is withheld until the last
// range of the backlog that has its key is published (backlog_keys_logic.h). What was handed out
// before the keys were read goes before it in the client.
//
//   split      the lane has read full chunks for a moment, or is far behind
//   withheld   an event read ahead has an earlier one of its key in the backlog
//   released   the position that is stored has passed that range: it may be published
//   joined     the backlog is published and stored, and nothing is withheld: one position again
//
// Single-threaded, no Postgres.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_BACKLOG_LOGIC_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_BACKLOG_LOGIC_H_

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include "worker/publisher/policy/moment.h"
#include "worker/publisher/source/log/chunk_reader.h"
#include "worker/publisher/source/log/lane_progress_logic.h"

namespace postbox::publisher {

// Tests turn the clock, and have smaller limits.
struct BacklogLimits {
  // A lane that is behind for so long, or by so many seqs, has a backlog.
  std::chrono::milliseconds patience{50};
  std::int64_t many_seqs = 10'000;
  // What is read ahead may begin with so many seqs of the backlog's own transaction.
  std::int64_t few_seqs = 2'500;
  // How long a claim reads keys.
  std::chrono::milliseconds keys_time{25};
  // So many events wait for earlier ones of their keys at most. Their seqs are in the lane's row.
  std::size_t most_withheld = 5'000;
  std::size_t keys_of_range = BacklogKeys::kKeysOfRange;
};

class Backlog {
 public:
  using Part = LaneProgress::Part;

  using Now = std::function<Moment()>;

  // What a claim may take.
  struct Room {
    std::size_t events;
    ByteBudget* budget;
    // What may be outstanding of all `lanes` together, in events and bytes.
    std::size_t most_events;
    std::size_t most_bytes;
    std::size_t lanes;
    // Otherwise what comes after the backlog waits.
    bool may_read_keys;
  };
  // What it has read, under one snapshot.
  struct Read {
    LogMoment moment;
    LogMoment main_moment;
    std::optional<LogChunk> main, ahead;
    bool more = false;  // keys of the backlog that are not known yet, or what had to stand back
  };

  // Of a lane whose events have keys, if `ordered`. The progress and the reader must outlive it.
  Backlog(LaneProgress& progress, ChunkReader& reader, bool ordered, Now now,
          BacklogLimits limits = {})
      : progress_(progress),
        reader_(reader),
        ordered_(ordered),
        now_(std::move(now)),
        limits_(limits) {}
  Backlog(const Backlog&) = delete;
  Backlog& operator=(const Backlog&) = delete;

  // The next chunk of the lane, or of each of its parts. `stored`: the lane's stored position.
  Read ReadNew(const LogMoment& moment, const LogPosition& stored, const Room& room);
  // Which events of a chunk have to wait for earlier ones of their keys; empty: none has.
  std::vector<bool> Withheld(const LogChunk& chunk, Part part) const;
  // Adds a chunk to the progress, which is not full or not empty. Returns the handle of its first
  // event. All are outstanding but those that are withheld.
  LaneProgress::Handle Add(const LogChunk& chunk, Part part, const LogMoment& moment,
                           const std::vector<bool>& withheld);
  // After both: splits the lane if it has a backlog, joins its parts if it has none any more.
  // Whether claiming again at once finds more. Needs no snapshot.
  bool SplitOrJoin(const Read& read);

  // Whether the next claim has to store the position before it reads, and that it does so now.
  bool TakeStoreDue() { return std::exchange(store_due_, false); }
  // What the progress has settled is stored.
  void Stored();
  // It is not, after all.
  void StoreFailed() { unstored_ = true; }
  // A claim has failed. Whether it was reading keys: these are forgotten.
  bool ForgetUnreadKeys();

 private:
  // While one full chunk follows another: where the lane is split if that lasts.
  struct Marker {
    std::int64_t seq;
    Moment since;
    FullXid long_transaction;  // of which the backlog is; 0: of many
  };

  // The next chunk of the backlog, and of what comes after it.
  void ReadParts(const LogPosition& stored, const Room& room, Read* read);
  void ReadMain(std::size_t limit, ByteBudget* budget, Read* read);
  // What others have committed late beside a long transaction. Whether there was any.
  bool ReadBeside(std::size_t limit, ByteBudget* budget, Read* read);
  void ReadAhead(std::size_t limit, const LogPosition& stored, const Room& room, Read* read);
  bool ReadsAhead() const { return keys_ && keys_->readable; }
  bool IsOver(const Read& read) const;
  bool IsSettled() const;
  // Whether the keys of the backlog are all known; reads some of them.
  bool KnowKeys(const LogPosition& stored, bool may_read, Read* read);
  // Hands out next what need not wait for the backlog any more; false if there is nothing.
  bool ReleaseSome(const LogPosition& stored, Read* read);
  // How many events of the backlog may be claimed now, so that there is room for others.
  std::size_t RoomOfMain(const Room& room) const;
  bool MustWait(const ClaimedEvent& event) const;
  void MarkBacklog(const Read& read);
  // Where a lane that has just read a full chunk is split. Not below its position.
  Marker MarkEnd(const LogMoment& moment);

  LaneProgress& progress_;
  ChunkReader& reader_;
  const bool ordered_;
  const Now now_;
  const BacklogLimits limits_;

  std::optional<Marker> marker_;
  // Of a split lane: what its marker said; 0 also if that is unknown.
  FullXid long_transaction_ = 0;
  // Of a split lane, since something came after the backlog.
  std::optional<KnownKeys> keys_;
  bool reads_keys_ = false;
  std::size_t event_bytes_ = 0;  // of an event of the backlog, on average
  bool ahead_first_ = false;     // the next claim reads nothing of the backlog
  // The stored position is before events of the first part that have been handed out.
  bool unstored_ = false;
  // Only that keeps the parts from being joined.
  bool store_due_ = false;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_BACKLOG_LOGIC_H_
