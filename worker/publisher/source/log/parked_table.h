// The table of parked events of a log outbox, as one lane reads and writes it: a function for each
// of its statements (log_outbox_sql.h), beside those that a table outbox has, too: queue(). What
// they mean is in parked_events.h.
//
// All functions run in a transaction, as the owner of the outbox. Keys are in the encoding of the
// server.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_PARKED_TABLE_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_PARKED_TABLE_H_

#include "extension/base/statement.h"
#include "worker/publisher/delivery/parked_queue.h"
#include "worker/publisher/policy/event_retry.h"
#include "worker/publisher/policy/moment.h"
#include "worker/publisher/source/event_rows.h"
#include "worker/publisher/source/log/log_outbox_sql.h"
#include "worker/publisher/store/publication.h"

namespace postbox::publisher {

// A row whose time has come.
struct DueRow {
  std::string key;
  std::int64_t seq;
  std::string id;
};

class ParkedTable {
 public:
  // All of these must outlive the object.
  ParkedTable(const Publication& publication, const std::string& topic, const Ordering& ordering)
      : publication_(publication), topic_(topic), ordering_(ordering), queue_(publication) {}

  // `name`: quoted and qualified.
  void Prepare(const LogOutboxSql& sql, const std::string& name);

  ParkedQueue& queue() { return queue_; }

  // Whether it has not even a page, as that of an outbox of which nothing was ever parked. Then no
  // statement is planned to read it, for one outbox of many.
  bool HasNoPage() const;
  // For a reader that knows of no rows: whether there may be some now. Looks at most ten times a
  // second, and waits for no lock.
  bool Look();
  // Whether the last Look() came too early. Then the next one looks.
  bool LookAgain() {
    if (look_skipped_) look_at_ = 0;
    return std::exchange(look_skipped_, false);
  }

  // A row of the log. Returns the id, or nothing if it was there.
  std::string Park(const ClaimedEvent& event, const EventRetry& retry, const std::string& error);
  // Rows of the log with these seqs and keys: `behind` earlier ones of their keys, or due.
  void ParkBehind(const std::vector<std::int64_t>& seqs, const std::vector<std::string>& keys,
                  bool behind);
  void ParkAgain(const ClaimedEvent& event, const EventRetry& retry, const std::string& error);
  // Rows that are due wait behind earlier ones of their keys.
  void PutBehind(const std::vector<std::string>& ids);
  void Delete(const std::vector<std::string>& ids);
  // The longest due first, of all keys but these.
  std::vector<DueRow> Due(std::size_t most, const std::vector<std::string>& without);
  // Key by key, in the order of seq, as far as the budget goes.
  Events RowsOfKeys(const std::vector<std::string>& keys, const std::vector<std::int64_t>& before,
                    std::size_t most, ByteBudget* budget);
  Events RowsOfIds(const std::vector<std::string>& ids, ByteBudget* budget);

 private:
  Datum Name() const { return TextValue(publication_.name); }
  // Where these rows are, which are locked now.
  std::vector<ItemPointerData> Lock(const std::vector<std::string>& ids);
  // Makes events of the rows of a statement as far as the budget goes. Those that cannot be one are
  // copied from the log again, where their owner may have repaired them.
  Events Read(Statement* statement, std::initializer_list<Datum> values, ByteBudget* budget);
  Events ReadRows(Statement* statement, std::initializer_list<Datum> values, ByteBudget* budget,
                  std::vector<std::string>* unreadable);

  const Publication& publication_;
  const std::string& topic_;
  const Ordering& ordering_;
  std::string name_;
  struct {
    Statement park_behind, park, park_unreadable, repair, lock, unpark, park_again;
    Statement due, rows_of_keys, rows_of_ids;
  } statements_;
  ParkedQueue queue_;
  Moment look_at_ = 0;
  bool look_skipped_ = false;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_PARKED_TABLE_H_
