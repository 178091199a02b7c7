// What a lane has read from its log and not yet settled, and how far it may be checkpointed.
//
// Chunks are read one after the other and published side by side. The lane may be checkpointed
// behind the last chunk of the unbroken row of chunks, from the oldest on, in which every event is
// settled: published, or parked in the transaction that writes the checkpoint or in one before it.
//
// When an event has failed and is to be published again, nothing is read any more until everything
// outstanding is settled; then the failed events are handed out again, in the order of reading, as
// many as there is room for; when these are settled, the next ones. So an event never overtakes an
// earlier one of its key, and no order has to be kept per key here.
//
// A long backlog is split off: what is above its end is read ahead of it, in separate chunks,
// and each of the two parts has its own unbroken row of chunks.
//
//   Split()     the backlog ends here
//   Withhold()  an event that was read ahead has an earlier one of its key in the backlog. It is
//               not published, and its seq is stored beside the position that has passed it
//   Release()   those that need not wait any more, all when the backlog has been read, are handed
//               out, in the order of reading, before anything else is read ahead
//   Join()      the backlog and they are settled: there is one position again
//
// Single-threaded, no Postgres.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_LANE_PROGRESS_LOGIC_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_LANE_PROGRESS_LOGIC_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "worker/publisher/store/log_position_logic.h"

namespace postbox::publisher {

class LaneProgress {
 public:
  // An event that was read; grows in the order of reading.
  using Handle = std::uint64_t;

  // Of a log without a long backlog all is in the first part.
  enum class Part : std::uint8_t { kMain, kAhead };

  struct Event {
    Handle handle;
    std::int64_t seq;
  };

  // Everything up to `start` is settled. Handles begin with `first`, at least 1.
  explicit LaneProgress(LanePosition start, Handle first = 1)
      : settled_(start), read_(std::move(start)), next_(first) {
    if (settled_.ahead) withheld_ = settled_.ahead->withheld;
  }

  // The handle that the next event will get.
  Handle next() const { return next_; }
  // The handle of the first event that is not settled, or is behind one that is not.
  Handle first_unsettled() const;
  // Where the next chunks begin. Its withheld events are of no account.
  const LanePosition& read() const { return read_; }
  // Of one part; the second only of a split lane.
  const LogPosition& read(Part part) const {
    return part == Part::kMain ? read_.main : read_.ahead->position;
  }
  // What may be checkpointed.
  const LanePosition& settled() const { return settled_; }
  std::size_t outstanding() const { return outstanding_[0] + outstanding_[1]; }
  std::size_t outstanding(Part part) const { return outstanding_[static_cast<std::size_t>(part)]; }
  // Events that wait to be handed out again.
  std::size_t failed() const { return failed_; }
  bool idle() const { return chunks_[0].empty() && chunks_[1].empty(); }

  bool is_split() const { return read_.ahead.has_value(); }
  // The seqs of events that are withheld, in the order of reading; how many were, and have yet to
  // be handed out.
  const std::vector<std::int64_t>& withheld() const { return withheld_; }
  std::size_t waiting() const { return waiting_; }

  // A chunk was read: events with these seqs, in this order. Returns the handle of the first; the
  // others follow it one by one. An empty chunk is settled at once.
  Handle Add(const std::vector<std::int64_t>& seqs, LogPosition after, Part part = Part::kMain);

  // An outstanding event is published or parked. Returns false for a handle that is not
  // outstanding.
  bool Settle(Handle handle);
  // An outstanding event must be published again.
  bool Fail(Handle handle);

  // What is handed out before anything new is read, `most` events in the order of reading: failed
  // ones, but none while something is outstanding; or else waiting ones. Nothing if there are none.
  std::optional<std::vector<Event>> FirstAgain(std::size_t most) const;
  // A failed or waiting event is outstanding. Returns false for a handle that is neither.
  bool HandOut(Handle handle);

  // Everything unread up to this seq, which is not below read().from(), is the backlog. Of a lane
  // that is not split.
  void Split(std::int64_t upto);
  // An outstanding event of the part that is ahead. Not while others wait.
  bool Withhold(Handle handle);
  // The withheld events with these seqs wait to be handed out. Returns the seqs.
  std::vector<std::int64_t> Release(const std::function<bool(std::int64_t seq)>& may_go);
  // Joins the parts of a split lane whose backlog was read, if that and what was withheld is
  // settled. Returns whether it was so.
  bool Join();

 private:
  enum class State : std::uint8_t { kOutstanding, kFailed, kWaiting, kSettled };
  struct Chunk {
    Handle first;
    std::vector<std::int64_t> seqs;
    std::vector<State> states;
    std::size_t unsettled;
    LogPosition after;
    std::vector<std::int64_t> withheld{};
    bool of_withheld = false;  // its events are those that chunks before it had withheld
  };
  struct Place {
    Chunk* chunk = nullptr;
    std::size_t index = 0;
    Part part = Part::kMain;
  };

  Place Find(Handle handle, State state);
  void AddChunk(const std::vector<std::int64_t>& seqs, State state, LogPosition after, Part part);
  void Advance(Part part);
  // The seq is not stored any more.
  void ForgetWithheld(std::int64_t seq);

  LanePosition settled_;
  LanePosition read_;
  Handle next_;
  std::array<std::deque<Chunk>, 2> chunks_;  // of the parts
  std::array<std::size_t, 2> outstanding_{};
  std::size_t failed_ = 0;
  std::vector<std::int64_t> withheld_;
  std::size_t waiting_ = 0;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_LANE_PROGRESS_LOGIC_H_
