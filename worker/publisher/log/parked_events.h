// The parked events of one lane of a log outbox: the rows of <outbox>_parked.
//
// A key with a parked event is paused (on_failure = 'park_key'): later events of it are moved
// aside, too, until no row of the key is left. Only the owner of the lane tries parked events.
// Other sessions change them by postbox.redrive and postbox.discard.
//
//   refused                      Park(): the row is copied with its error, attempts and next retry
//   a row that cannot be an      ParkUnreadable(): likewise, with attributes that are no JSON
//   event                        object, and without its payload. It stays in the log; each try
//                                looks there whether its owner has repaired it
//   an event of a paused key     ParkBehind(): copied with no attempts; it waits for earlier ones
//   its time has come            Claim(): the first row of each key, and those that wait behind it
//   published                    Settle(), Commit(): the row is deleted
//   refused again                Settle(): one more attempt, later next retry, at last 'infinity'
//
// All functions run in a transaction of the lane's, as the owner of the outbox. After a rollback,
// Reset() and Load().
#ifndef POSTBOX_WORKER_PUBLISHER_LOG_PARKED_EVENTS_H_
#define POSTBOX_WORKER_PUBLISHER_LOG_PARKED_EVENTS_H_

#include "extension/base/statement.h"
#include "worker/publisher/base/event_rows.h"
#include "worker/publisher/base/outbox_source.h"
#include "worker/publisher/base/publication.h"
#include "worker/publisher/log/log_outbox_sql.h"

namespace postbox::publisher {

class ParkedEvents {
 public:
  // All of these must outlive the object.
  ParkedEvents(const Publication& publication, const std::string& topic, const Ordering& ordering)
      : publication_(publication), topic_(topic), ordering_(ordering) {}

  void Prepare(const LogOutboxSql& sql, const std::string& relation_name);
  // Reads which keys have rows.
  void Load();
  // Nothing is known any more, and nothing is outstanding.
  void Reset();

  bool Pauses(const std::string& key) const {
    return publication_.parked_blocks && ordering_.ordered() && keys_.contains(key);
  }
  bool HasKeys() const { return !keys_.empty(); }
  bool HasOutstanding() const { return !outstanding_keys_.empty(); }

  void Park(const ClaimedEvent& event);
  void ParkBehind(const std::vector<std::int64_t>& seqs);

  // Appends the parked events that may be tried now; none of a key of which one is outstanding.
  void Claim(std::size_t limit, Events* events);
  // The result of an event of Claim().
  void Settle(const ClaimedEvent& event);
  // Deletes what was published, after the last Settle().
  void DeletePublished();

 private:
  // Seconds until the next try; infinity when `may_fail` and the attempts are used up.
  double BackoffSeconds(int attempts, bool may_fail) const;

  const Publication& publication_;
  const std::string& topic_;
  const Ordering& ordering_;
  std::span<const StoredRow> ReadRows(const std::vector<std::string>& keys, Datum count);

  std::string relation_name_;  // of the table of parked events
  Statement park_behind_, park_, park_unreadable_, repair_;
  Statement parked_keys_, due_keys_, parked_rows_, unpark_, park_again_;
  std::unordered_set<std::string> keys_;              // with a row
  std::unordered_set<std::string> outstanding_keys_;  // of which rows are outstanding
  std::vector<std::string> published_;                // ids to be deleted
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_LOG_PARKED_EVENTS_H_
