// What a lane reads of its log: chunks of events, and the keys of a backlog. LogReader does it with
// SQL; backlog_logic_test.cc with a random history.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_CHUNK_READER_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_CHUNK_READER_H_

#include <vector>

#include "worker/publisher/source/byte_budget.h"
#include "worker/publisher/source/claimed_event.h"
#include "worker/publisher/source/log/backlog_keys_logic.h"
#include "worker/publisher/store/log_position_logic.h"

namespace postbox::publisher {

struct LogChunk {
  // To hand out, in order.
  Events events;
  // There may be more. If nothing was read either, the first event is too large for the budget.
  bool full = false;
  FullXid left_out = 0;  // the moment's

  std::vector<std::int64_t> Seqs() const {
    std::vector<std::int64_t> seqs;
    seqs.reserve(events.size());
    for (const EventPointer& event : events) seqs.push_back(event->seq);
    return seqs;
  }
  std::size_t Bytes() const {
    std::size_t bytes = 0;
    for (const EventPointer& event : events) bytes += event->bytes();
    return bytes;
  }
  // Whether there is nothing up to the moment's hwm.
  bool IsEnd() const { return events.empty() && !full; }
  // Where a lane stands that has read the chunk, which is not full or not empty.
  LogPosition After(const LogPosition& position, const LogMoment& moment) const {
    LogMoment looked = moment;
    looked.left_out = left_out;
    return full || left_out != 0 ? position.AfterPartial(looked, events.back()->seq)
                                 : position.AfterAll(moment);
  }
};

// Which keys a backlog has, as far as they have been read.
struct KnownKeys {
  LogPosition read;
  BacklogKeys keys{};
  bool complete = false;         // all were known at a moment
  std::int64_t window = 50'000;  // how many new seqs the next step looks at
  bool readable = true;          // false: they cannot all be known
};

class ChunkReader {
 public:
  virtual ~ChunkReader() = default;

  // What is late, then what is new, up to the moment's hwm.
  virtual LogChunk Read(const LogPosition& position, const LogMoment& moment, std::size_t limit,
                        ByteBudget* budget) = 0;
  // What is late only.
  virtual LogChunk ReadLate(const LogPosition& position, const LogMoment& moment, std::size_t limit,
                            ByteBudget* budget) = 0;

  // The transaction that has written this row, and its last seq up to the moment's hwm; 0 and `seq`
  // if there is no such row. Needs no snapshot.
  struct Transaction {
    FullXid txid;
    std::int64_t last;
  };
  virtual Transaction TransactionOf(const LogMoment& moment, std::int64_t seq) = 0;

  // Adds the keys of some thousand of those events. True: these were all. False also if they cannot
  // be read; then they never can. The key of an event that is too long to be published is left out.
  virtual bool ReadKeys(const LogMoment& moment, KnownKeys* known) = 0;
  // The same for events that are withheld already.
  virtual void ReadWithheld(const std::vector<std::int64_t>& seqs, KnownKeys* known) = 0;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_CHUNK_READER_H_
