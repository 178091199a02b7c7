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
// Single-threaded, no Postgres.
#ifndef POSTBOX_WORKER_PUBLISHER_LOG_LANE_PROGRESS_LOGIC_H_
#define POSTBOX_WORKER_PUBLISHER_LOG_LANE_PROGRESS_LOGIC_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "worker/publisher/base/log_position_logic.h"

namespace postbox::publisher {

class LaneProgress {
 public:
  // An event that was read; grows in the order of reading.
  using Handle = std::uint64_t;

  struct Failed {
    Handle handle;
    std::int64_t seq;
  };

  // Everything up to `start` is settled. Handles begin with `first`, at least 1.
  explicit LaneProgress(LogPosition start, Handle first = 1)
      : settled_(start), read_(std::move(start)), next_(first) {}

  // The handle that the next event will get.
  Handle next() const { return next_; }
  // Where the next chunk begins.
  const LogPosition& read() const { return read_; }
  // What may be checkpointed.
  const LogPosition& settled() const { return settled_; }
  std::size_t outstanding() const { return outstanding_; }
  // Events that wait to be handed out again.
  std::size_t failed() const { return failed_; }
  bool idle() const { return chunks_.empty(); }

  // A chunk was read: events with these seqs, in this order. Returns the handle of the first; the
  // others follow it one by one. An empty chunk is settled at once.
  Handle Add(const std::vector<std::int64_t>& seqs, LogPosition after);

  // An outstanding event is published or parked. Returns false for a handle that is not
  // outstanding.
  bool Settle(Handle handle);
  // An outstanding event must be published again.
  bool Fail(Handle handle);

  // The first `most` failed events in the order of reading; none while something is outstanding.
  std::vector<Failed> FirstFailed(std::size_t most) const;
  // A failed event is outstanding again. Returns false for a handle that has not failed.
  bool Retry(Handle handle);

 private:
  enum class State : std::uint8_t { kOutstanding, kFailed, kSettled };
  struct Chunk {
    Handle first;
    std::vector<std::int64_t> seqs;
    std::vector<State> states;
    std::size_t unsettled;
    LogPosition after;
  };
  struct Place {
    Chunk* chunk = nullptr;
    std::size_t index = 0;
  };

  Place Find(Handle handle, State state);
  void Advance();

  LogPosition settled_;
  LogPosition read_;
  Handle next_;
  std::deque<Chunk> chunks_;
  std::size_t outstanding_ = 0;
  std::size_t failed_ = 0;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_LOG_LANE_PROGRESS_LOGIC_H_
