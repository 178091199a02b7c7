// Reads what a lane has not read of its log: events to be published, or only their keys.
//
// All functions run as the owner of the outbox, under a snapshot that the caller has pushed and of
// which it has taken the moment.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_LOG_READER_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_LOG_READER_H_

#include "extension/base/statement.h"
#include "worker/publisher/source/event_rows.h"
#include "worker/publisher/source/log/chunk_reader.h"
#include "worker/publisher/source/log/log_outbox_sql.h"
#include "worker/publisher/store/publication.h"

namespace postbox::publisher {

class LogReader : public ChunkReader {
 public:
  // All of these must outlive the object.
  LogReader(const Publication& publication, const std::string& topic, const Ordering& ordering)
      : publication_(publication), topic_(topic), ordering_(ordering) {}

  void Prepare(const LogOutboxSql& sql, const std::string& relation_name);

  LogChunk Read(const LogPosition& position, const LogMoment& moment, std::size_t limit,
                ByteBudget* budget) override;
  LogChunk ReadLate(const LogPosition& position, const LogMoment& moment, std::size_t limit,
                    ByteBudget* budget) override;
  Transaction TransactionOf(const LogMoment& moment, std::int64_t seq) override;
  bool ReadKeys(const LogMoment& moment, KnownKeys* known) override;
  void ReadWithheld(const std::vector<std::int64_t>& seqs, KnownKeys* known) override;

  // The same events for rows that are known, in the order of seq, as far as the budget goes.
  // Returns the seq of the first one that is left.
  std::optional<std::int64_t> ReadAgain(const std::vector<std::int64_t>& seqs, ByteBudget* budget,
                                        Events* events);
  // Whether there is a row that this position has read, or a later snapshot would have; nothing if
  // the log is empty.
  std::optional<bool> AnyRead(const LanePosition& position);

 private:
  // Makes events of the rows of SPI_tuptable, which are in the order of seq, as far as the budget
  // goes. Returns the seq of the first row that is left.
  std::optional<std::int64_t> TakeRows(uint64 rows, ByteBudget* budget, Events* events) const;
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
  Statement transaction_of_, any_read_;
  FilteredStatement again_, late_txids_, any_late_, late_, plain_, fresh_, late_keys_, fresh_keys_,
      again_keys_;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_LOG_READER_H_
