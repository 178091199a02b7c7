// What a claim of a table outbox takes: retries that are due with what waits behind them, then what
// waits, some chunks of it in the order of seq. Rows are chosen here, and locked; what may be taken
// is decided in claim_logic.h, where a walk begins and what it leaves out in claim_floor_logic.h.
//
// Republished events of a key (sql/install/functions/36_republish.sql) are rows that were published
// and wait again, in front of all others of the key. Claims that do not see them yet may have taken
// a later row, or be about to. So their first row, which begins a run, is claimed only when no
// later row of its key is leased, and the first of these that a claim could take is put behind it.
// A claim that began earlier cannot lock that one any more, and takes nothing of the key without
// it.
//
// A claim is short, however much waits. The next one goes on where this one stopped; the first
// chunks of each begin with the oldest row, where results may have made room.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_TABLE_CLAIM_WALK_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_TABLE_CLAIM_WALK_H_

#include <vector>

#include "worker/publisher/policy/parked_share.h"
#include "worker/publisher/source/outbox_source.h"
#include "worker/publisher/source/table/event_table.h"
#include "worker/publisher/source/table/in_hand_logic.h"

namespace postbox::publisher {

// A row that is locked, to be leased.
struct ChosenRow {
  ItemPointerData tid;
  int64 seq;
  std::string key;
  std::size_t bytes;
  std::size_t too_large;  // the size of a payload that is larger than any message, or 0
};

class ClaimWalk {
 public:
  // `blocks`: a parked row stops its key. The others must outlive the object.
  ClaimWalk(bool blocks, EventTable& table, const InHand& in_hand)
      : blocks_(blocks), table_(table), in_hand_(in_hand), free_behind_(!blocks) {}

  // In the transaction, or subtransaction, that will lease them.
  std::vector<ChosenRow> Choose(const ClaimLimits& limits, ClaimResult* result);

  // Walks leave these out from now on: seqs in order, of rows that are leased.
  void Leased(const std::vector<int64>& seqs);
  // Results were stored, so rows that a walk has passed may be free.
  void Settled() { settled_ = true; }
  // Rows wait again that walks have passed.
  void Released() { floor_.Clear(); }
  // Rows may be behind although nothing stops a key: on_failure was 'park_key' before.
  void LookBehind() { free_behind_ = !blocks_; }
  void BeginAtFloor() { cursor_ = 0; }
  // Where all of this starts again.
  void Reset();

  // Leases of others that walks have passed since the last call.
  std::vector<ItemPointerData> TakeLeasesSeen() { return std::exchange(leases_seen_, {}); }

 private:
  using Clock = std::chrono::steady_clock;
  // What one claim has chosen.
  struct Choice {
    ClaimSelection selection;
    std::vector<ChosenRow> rows;
    bool progress = false;  // claiming again at once may find more
  };

  // Takes what waits, some chunks of it: from the floor on, and then from the cursor on. Returns
  // whether it came to the end.
  bool Walk(std::size_t most, Choice* choice);
  // The walk has come to the end of this chunk, where it was `cut`: moves `at` there, and remembers
  // what others have leased. Returns the first row that waits, or up to where none does.
  std::optional<int64> Passed(const Candidates& candidates, bool cut, int64* at);
  // The first ones with what is behind them, as far as there is room, and then others.
  void TakeRetries(std::size_t most, Choice* choice);
  // What is behind the rows that were chosen.
  void TakeFollowers(std::size_t most, Choice* choice);
  // Takes the first rows of runs out of `locked` that may not begin yet.
  void BeginRuns(const Candidates& candidates, const std::vector<ClaimVerdict>& verdicts,
                 std::unordered_set<int64>* locked);
  // Which kind of rows candidates are.
  enum class Kind { kWalk, kRetries, kFollowers };
  // Judges, locks and takes what is free.
  void Take(const Candidates& candidates, Kind kind, Choice* choice);
  // Puts locked rows behind the first ones of their keys, as far as these can be held. Returns
  // whether any was.
  bool PutBehind(const std::vector<const Candidate*>& candidates,
                 const std::vector<ItemPointerData>& rows);

  const bool blocks_;
  EventTable& table_;
  const InHand& in_hand_;
  ClaimFloor floor_;
  int64 cursor_ = 0;      // where the walk over the backlog goes on; 0: it begins at the floor
  bool settled_ = false;  // results were stored since it began there
  ParkedShare share_;
  bool free_behind_;
  std::vector<ItemPointerData> leases_seen_;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_TABLE_CLAIM_WALK_H_
