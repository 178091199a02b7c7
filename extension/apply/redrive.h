// Applying dead letters: one, or the letters of a parked key in their order.
//
// The row of the inbox is deleted and the event is applied like a new one, in a subtransaction. If
// that has no effect, since the event is stale, ignored or a duplicate, all of it is rolled back
// and the dead letter stays with that outcome: it may hold what no other event has. Such a letter
// is no longer part of its key, and the key goes on. A parked event that nothing takes is an
// exception: it is gone, as if it had come now.
#ifndef POSTBOX_EXTENSION_APPLY_REDRIVE_H_
#define POSTBOX_EXTENSION_APPLY_REDRIVE_H_

#include "extension/apply/dead_letter.h"
#include "extension/apply/parked_keys.h"

namespace postbox {

struct Redriven {
  Outcome outcome;
  std::optional<PostgresError> error;  // of kRejected
  bool is_attempt = false;             // the error is the event's
};
// Does not throw what fails, but a cancelled statement and the end of the session. Throws
// object_not_in_prerequisite_state if the letter can only be read.
Redriven Redrive(ApplySession& session, DeadLetter& letter);

// How far one call goes.
struct StepLimit {
  int64 events;
  TimestampTz until;
};

struct KeyStep {
  int64 applied = 0;
  int64 without_effect = 0;
  std::optional<PostgresError> error;  // of the letter that stopped the key
  bool is_attempt = false;             // that error is the event's
  bool more = false;                   // the limit has stopped it
  bool emptied = false;                // no letter is left: RemoveParkedKey
  Outcome last = Outcome::kRejected;
  int64 done() const { return applied + without_effect; }
};
// `claimed`: by ClaimParkedKey, in a transaction before. Nothing if the key is not parked, or, with
// kSkipLocked, another session works on it.
// The caller removes a key that is emptied after all effects of its transaction: new events of the
// key wait from then on until it commits.
std::optional<KeyStep> RedriveKey(ApplySession& session, Datum aggregate_id, bool claimed,
                                  Wait wait, const StepLimit& limit);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_REDRIVE_H_
