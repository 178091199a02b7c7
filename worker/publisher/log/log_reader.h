// Reads what a lane has not read of its log: events to be published, or only their keys.
//
// All functions run as the owner of the outbox, under a snapshot that the caller has pushed and of
// which it has taken the moment.
#ifndef POSTBOX_WORKER_PUBLISHER_LOG_LOG_READER_H_
#define POSTBOX_WORKER_PUBLISHER_LOG_LOG_READER_H_

#include "extension/base/statement.h"
#include "worker/publisher/base/event_rows.h"
#include "worker/publisher/base/log_position_logic.h"
#include "worker/publisher/base/outbox_source.h"
#include "worker/publisher/base/publication.h"
#include "worker/publisher/log/backlog_keys_logic.h"
#include "worker/publisher/log/log_outbox_sql.h"

namespace postbox::publisher {

struct LogChunk {
  // To hand out, in order.
  Events events;
  // There may be more. If nothing was read either, the first event is too large for the budget.
  bool full = false;
  FullXid left_out = 0;  // the moment's

  std::vector<std::int64_t> Seqs() const;
  std::size_t Bytes() const;
};

// Which keys a backlog has, as far as they have been read.
struct KnownKeys {
  LogPosition read;
  BacklogKeys keys{};
  bool complete = false;         // all were known at a moment
  std::int64_t window = 50'000;  // how many new seqs the next step looks at
  bool readable = true;          // false: they cannot all be known
};

class LogReader {
 public:
  // All of these must outlive the object.
  LogReader(const Publication& publication, const std::string& topic, const Ordering& ordering)
      : publication_(publication), topic_(topic), ordering_(ordering) {}

  void Prepare(const LogOutboxSql& sql, const std::string& relation_name);

  // What is late, then what is new, up to the moment's hwm.
  LogChunk Read(const LogPosition& position, const LogMoment& moment, std::size_t limit,
                ByteBudget* budget);
  // What is late only.
  LogChunk ReadLate(const LogPosition& position, const LogMoment& moment, std::size_t limit,
                    ByteBudget* budget);
  // Where a lane stands that has read the chunk, which is not full or not empty.
  static LogPosition After(const LogPosition& position, const LogMoment& moment,
                           const LogChunk& chunk);

  // The transaction that has written this row, and its last seq up to the moment's hwm; 0 and `seq`
  // if there is no such row. Needs no snapshot.
  struct Transaction {
    FullXid txid;
    std::int64_t last;
  };
  Transaction TransactionOf(const LogMoment& moment, std::int64_t seq);

  // Adds the keys of some thousand of those events. True: these were all. False also if they cannot
  // be read; then they never can.
  bool ReadKeys(const LogMoment& moment, KnownKeys* known);
  // The same for events that are withheld already.
  void ReadWithheld(const std::vector<std::int64_t>& seqs, KnownKeys* known);
  // An event of such a key cannot be published, and no such key is read.
  static bool IsTooLong(const std::string& key);

  // Makes events of the rows of SPI_tuptable, which are in the order of seq, as far as the budget
  // goes. Returns the seq of the first row that is left.
  std::optional<std::int64_t> TakeRows(uint64 rows, ByteBudget* budget, Events* events) const;

 private:
  // Of which transactions late rows are looked for, and up to which seq.
  struct Late {
    std::vector<FullXid> txids;
    std::int64_t upto;
  };
  // What is new, as far as rows are plain. False: it begins with one that is not.
  bool ReadPlain(const LogPosition& position, const LogMoment& moment, std::size_t limit,
                 ByteBudget* budget, LogChunk* chunk);
  Late FindLate(const LateRead& read, const LogMoment& moment, std::size_t count);
  std::size_t KeysOfStep() const;
  // Adds the keys of SPI_tuptable, which the snapshot shows. Returns the seq of the last row.
  std::int64_t TakeKeys(uint64 rows, const XidSnapshot& snapshot, KnownKeys* known) const;

  const Publication& publication_;
  const std::string& topic_;
  const Ordering& ordering_;
  std::string relation_name_;
  Statement transaction_of_;
  FilteredStatement late_txids_, any_late_, late_, plain_, fresh_, late_keys_, fresh_keys_,
      again_keys_;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_LOG_LOG_READER_H_
