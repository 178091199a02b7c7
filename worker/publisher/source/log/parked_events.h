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
//   read too early               Park(): copied with no attempts and no error, and its deliver_at
//                                as the next retry. Events of its key wait behind it, as behind a
//                                refused one
//   read too late                Settle(): like one that was published
//   refused again                Settle(): one more attempt, later next retry, at last 'infinity'
//   no answer comes              the same, but it is no attempt
//
// How rows wait behind the first one of their key is told in delivery/parked_queue.h. If that one
// cannot be held, it may just be deleted: then the new one is due, and Claim() puts it behind if
// there is still an earlier one. The keys are read in steps (Ready()), and kept.
//
// postbox.republish adds rows of events that were published before: the first one of a key is due,
// and the others are behind it. Rule: no row is handed out before its key is paused.
//
//   republish    its COMMIT makes the rows visible
//   Claim()      finds one that is due and whose key is not known to have it. It hands out none of
//                that key, and nothing is claimed before all keys of the table are read (Ready())
//   before that  later events of the key that were read from the log have been handed out. They
//                come before the run
//   afterwards   they are put behind it as they are read
//
// A worker that is killed in between changes nothing: the next one begins with Reset().
//
// The statements are in parked_table.h. Which keys have rows, and which of these are on their way,
// is in paused_keys_logic.h.
//
// All functions run in a transaction of the lane's, as the owner of the outbox. BeginStep() comes
// before those of a transaction; after its rollback, RollBack() or Reset(), and Ready(). Keys are
// in the encoding of the server.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_PARKED_EVENTS_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_PARKED_EVENTS_H_

#include "worker/publisher/delivery/event_log.h"
#include "worker/publisher/policy/moment.h"
#include "worker/publisher/source/log/parked_table.h"
#include "worker/publisher/source/log/paused_keys_logic.h"

namespace postbox::publisher {

class ParkedEvents {
 public:
  // All of these must outlive the object.
  ParkedEvents(const Publication& publication, const std::string& topic, const Ordering& ordering,
               EventLog& log)
      : publication_(publication),
        blocks_(publication.parked_blocks && ordering.ordered()),
        log_(log),
        table_(publication, topic, ordering) {}

  void Prepare(const LogOutboxSql& sql, const std::string& relation_name) {
    table_.Prepare(sql, relation_name);
  }
  // Whether it is known which keys have rows, since Reset() and ReloadFirst(), and since rows of
  // other keys were found; reads some of them.
  // Until then nothing may be claimed.
  bool Ready();
  // Reads them once more, some in a step, and repairs what is behind nothing.
  void Repair();
  std::chrono::milliseconds RepairIn() const;
  // Rows were put into the table that go before all that is in the log.
  void ReloadFirst();
  // Whether nothing of the log may be claimed before what is parked: without a pause, their keys
  // would go on there.
  bool GoFirst() const { return first_; }
  // Whether a claim may find any.
  bool AnyToRead() const { return !keys_.read() || !keys_.empty() || reload_.due || first_; }
  void BeginStep() { keys_.BeginStep(); }
  // A transaction that has parked nothing and settled nothing has failed. What the table has is not
  // known any more, but what was claimed in an earlier one is still outstanding.
  void RollBack();
  // Nothing is known any more, and nothing is outstanding.
  void Reset();

  bool Pauses(const std::string& key) const { return blocks_ && keys_.contains(key); }
  bool HasKeys() const { return !keys_.empty(); }
  std::size_t outstanding() const { return keys_.on_their_way(); }

  // One that was refused, or is delayed.
  void Park(const ClaimedEvent& event);
  // An event of a key that Pauses().
  struct Waiting {
    std::int64_t seq;
    std::string key;
  };
  void ParkBehind(const std::vector<Waiting>& events);

  // What a claim may take: so many events, up to this seq if they have an order.
  struct Room {
    std::size_t events;
    std::int64_t upto;
  };
  // Appends the parked events that may be tried now, as far as the budget goes; none of a key of
  // which one is outstanding. Returns whether claiming again at once may find more.
  bool Claim(const Room& room, ByteBudget* budget, Events* events);
  // While no key is known to have rows, Claim() looks at most ten times a second whether another
  // session has added some. Whether it did not look; then the next one does.
  bool LookAgain() { return keys_.empty() && table_.LookAgain(); }
  // The result of an event of Claim().
  void Settle(const ClaimedEvent& event);
  // Deletes what was published, after the last Settle().
  void DeletePublished();

 private:
  // The next step of a round over the keys, or the first one. Whether the round has ended.
  bool Load();

  std::vector<ParkedHead> HeadsOf(const std::vector<std::string>& keys);

  // The keys of which the first row is due; puts other rows that are due behind it.
  std::vector<std::string> DueKeys(std::vector<DueRow> due, bool* more);
  bool ClaimDue(const Room& room, ByteBudget* budget, Events* events);
  // Hands out those of each key that may be tried together.
  void Take(Events rows, std::int64_t upto, Events* events);
  // What is known is dropped. If that was while it was read, the next step reads less.
  void ForgetLoad();

  const Publication& publication_;
  const bool blocks_;  // a parked row stops its key
  EventLog& log_;
  ParkedTable table_;
  PausedKeys keys_;

  std::vector<std::string> published_;       // ids to be deleted, expired ones among them
  std::unordered_set<std::string> settled_;  // keys of which a row may be gone
  // Keys whose first row is behind, but was locked by another session.
  std::unordered_set<std::string> to_make_due_;
  // Rows may be behind although nothing stops a key: on_failure was 'park_key' before.
  bool free_behind_rows_ = false;

  HeadsRound round_;         // of Load()
  int load_keys_ = 10'000;   // of a step; less when one took too long
  bool load_fails_ = false;  // its last step has not ended
  Moment loaded_at_ = 0;
  struct {
    bool due = false;                     // there are rows that a round has yet to read
    std::unordered_set<std::string> met;  // of keys that were not known when they were due
  } reload_;
  bool first_ = false;  // see GoFirst()
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_PARKED_EVENTS_H_
