// The parked events of one lane of a log outbox: the rows of <outbox>_parked.
//
// A key with a parked event is paused (on_failure = 'park_key'): later events of it are moved
// aside, too, until no row of the key is left. Only the owner of the lane tries parked events.
// Other sessions change them by postbox.redrive and postbox.discard.
//
//   refused                      Park(): the row is copied with its error, attempts and next retry
//   a row that cannot be an      Park(): likewise, without its payload, and marked as unreadable.
//   event                        It stays in the log; each try looks there whether its owner has
//                                repaired it
//   an event of a paused key     ParkBehind(): copied with no attempts; it waits for earlier ones
//   its time has come            Claim(): the first row of its key, and those that wait behind it
//   published                    Settle(), DeletePublished(): the row is deleted, and the next one
//                                of its key is due
//   refused again                Settle(): one more attempt, later next retry, at last 'infinity'
//   no answer comes              the same, but it is no attempt
//
// However many rows wait, nothing here reads them before it is their turn. Rows behind another one
// have next_retry_at = 'infinity', and are reached through the first row of their key. Whoever
// removes that makes the next one due in the same transaction. The keys are read in steps, and
// kept.
//
// What must not happen is that a row is behind nothing. So it is put behind a row that is locked
// against DELETE until the commit; whoever deletes that row looks for the next one afterwards. If
// the row cannot be locked, it may just be deleted: then the new one is due, and Claim()
// puts it behind if there is still an earlier one. Load() repairs what an UPDATE or DELETE of the
// owner's own has left.
//
// All functions run in a transaction of the lane's, as the owner of the outbox. BeginStep() comes
// before those of a transaction; after its rollback, RollBack() or Reset(), and Load(). Keys are in
// the encoding of the server.
#ifndef POSTBOX_WORKER_PUBLISHER_LOG_PARKED_EVENTS_H_
#define POSTBOX_WORKER_PUBLISHER_LOG_PARKED_EVENTS_H_

#include "extension/base/statement.h"
#include "worker/publisher/base/event_log.h"
#include "worker/publisher/base/event_rows.h"
#include "worker/publisher/base/outbox_source.h"
#include "worker/publisher/base/publication.h"
#include "worker/publisher/log/log_outbox_sql.h"
#include "worker/publisher/policy/event_retry.h"

namespace postbox::publisher {

class ParkedEvents {
 public:
  // All of these must outlive the object.
  ParkedEvents(const Publication& publication, const std::string& topic, const Ordering& ordering,
               EventLog& log)
      : publication_(publication),
        topic_(topic),
        ordering_(ordering),
        blocks_(publication.parked_blocks && ordering.ordered()),
        log_(log) {}

  void Prepare(const LogOutboxSql& sql, const std::string& relation_name);
  // Reads which keys have rows, some in a step, from where the last step has stopped. True: that
  // were all; the next step begins with the first again.
  bool Load();
  // Whether all have been read since Reset(). Until then nothing may be claimed.
  bool loaded() const { return loaded_; }
  void BeginStep() { claimed_.clear(); }
  // A transaction that has parked nothing and settled nothing has failed. What the table has is not
  // known any more, but what was claimed in an earlier one is still outstanding.
  void RollBack();
  // Nothing is known any more, and nothing is outstanding.
  void Reset();

  bool Pauses(const std::string& key) const { return blocks_ && keys_.contains(key); }
  bool HasKeys() const { return !keys_.empty(); }
  bool HasOutstanding() const { return !outstanding_.empty(); }
  std::size_t outstanding() const;

  void Park(const ClaimedEvent& event);
  // An event of a key that Pauses().
  struct Waiting {
    std::int64_t seq;
    std::string key;
  };
  void ParkBehind(const std::vector<Waiting>& events);

  // Appends the parked events that may be tried now, as far as the budget goes; none of a key of
  // which one is outstanding. Returns whether claiming again at once may find more.
  bool Claim(std::size_t limit, ByteBudget* budget, Events* events);
  // The result of an event of Claim().
  void Settle(const ClaimedEvent& event);
  // Deletes what was published, after the last Settle().
  void DeletePublished();

 private:
  struct Head {
    std::string key;
    std::int64_t seq;
    ItemPointerData tid;
    bool behind;
  };
  struct Due {
    std::string key;
    std::int64_t seq;
    std::string id;
  };

  // The rows of a key that have been handed out.
  struct Outstanding {
    int rows = 0;
    std::int64_t last = PG_INT64_MIN;  // the greatest seq
    bool passed = false;               // a row has been added before that
  };

  // Whether the table has not even a page, as that of an outbox of which nothing was ever parked.
  // Then no statement is planned to read it, for one outbox of many.
  bool HasNoPage() const;
  // A round of Load() is over.
  void Loaded();
  // A row of the key is in the table now.
  void Added(const std::string& key, std::int64_t seq);

  // When an event that had so many attempts is tried again.
  EventRetry Retry(const ClaimedEvent& event, int attempts) const;

  Datum Name() const;
  std::vector<Head> TakeHeads(uint64 rows) const;
  // In no order; of keys without a row, nothing.
  std::vector<Head> HeadsOf(const std::vector<std::string>& keys);
  Datum SeqsBefore(const std::vector<std::string>& keys) const;
  void MakeDue(const std::vector<Head>& heads);
  // The keys whose first row is locked against DELETE now.
  std::unordered_set<std::string> Hold(const std::vector<Head>& heads);
  // Where these rows are, which are locked now.
  Datum Lock(const std::vector<std::string>& ids);

  std::vector<Due> ReadDue(std::size_t limit);
  // The keys of which the first row is due; puts other rows that are due behind it.
  std::vector<std::string> DueKeys(const std::vector<Due>& due, bool* more);
  void TakeRows(Statement* statement, std::initializer_list<Datum> values, ByteBudget* budget,
                Events* events);
  // Makes events of the rows of a statement as far as the budget goes. `unreadable`: the ids of
  // those that cannot be one.
  Events ReadRows(Statement* statement, std::initializer_list<Datum> values, ByteBudget* budget,
                  std::vector<std::string>* unreadable);

  const Publication& publication_;
  const std::string& topic_;
  const Ordering& ordering_;
  const bool blocks_;  // a parked row stops its key
  EventLog& log_;

  std::string relation_name_;  // of the table of parked events
  Statement park_behind_, park_, park_unreadable_, repair_, lock_, unpark_, park_again_;
  Statement heads_, heads_of_, hold_, make_due_, free_behind_;
  Statement due_, park_due_behind_, rows_of_keys_, rows_of_ids_;

  // The keys with a row, and a seq of each that is not above its rows: what was deleted need not be
  // passed again to find the first row.
  std::unordered_map<std::string, std::int64_t> keys_;
  std::unordered_map<std::string, Outstanding> outstanding_;
  // The keys of what this step has handed out. None of them had anything outstanding before.
  std::unordered_set<std::string> claimed_;
  std::vector<std::string> published_;       // ids to be deleted
  std::unordered_set<std::string> settled_;  // keys of which a row may be gone
  bool loaded_ = false;
  bool loading_ = false;                   // a round of Load() is not over
  bool load_fails_ = false;                // its last step has not ended
  int load_keys_ = 10'000;                 // of a step; less when one took too long
  std::string loaded_upto_;                // the key at which it goes on
  std::unordered_set<std::string> found_;  // the keys that it has found, and those added meanwhile
  // Keys whose first row is behind, but was locked by another session.
  std::unordered_set<std::string> to_make_due_;
  // Rows may be behind although nothing stops a key: on_failure was 'park_key' before.
  bool free_behind_rows_ = false;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_LOG_PARKED_EVENTS_H_
