// Parked keys: the order of a key after one of its events has failed for good.
//
// What is on disk. An event that failed with on_error => 'park_key' is a dead letter that is
// `parked`, and its key (inbox, aggregate_id) has a row in postbox.parked_key. What follows of the
// key is parked behind it: a dead letter, too, for which nothing was called. The order within a key
// is that of dead_letter.id. Each of these events has its row in the inbox, with outcome parked, so
// a redelivery is a duplicate; that row is not purged while it is parked. Nothing is in memory.
//
// Rule: a new event is applied only if no event of its key is parked. The row of the key is locked
// so that this is asked and answered in one moment:
//
//     new event:  N1 insert the rows of the inbox (of a batch: all of them)
//                 N2 a new snapshot: look for the key, and lock it FOR KEY SHARE
//                    there: park behind it; not there: apply
//     first failure: F1 insert the row of the key, ON CONFLICT DO NOTHING: inserted: done
//                 F2 there is one: lock it FOR KEY SHARE: done; it is gone: F1 again
//     redrive:    R1 lock the key FOR NO KEY UPDATE. Others that redrive pass over it, or wait
//                 R2 apply the first letter and remove it; again, for some letters
//                 R3 none is left: lock the key FOR UPDATE, SKIP LOCKED: no session parks behind
//                 R4 a new snapshot: look for letters: none: delete the key; some: leave it
//
// The races:
//  - Parking behind never waits for a handler: KEY SHARE and NO KEY UPDATE do not conflict.
//  - The last letter and a new event. If N2 comes before R3, the new event is being parked: R3 does
//    not get its lock, or R4 finds the letter; the key stays, and is due at once. If N2 comes after
//    R3, it waits until the redrive has committed: then the row is gone and the event is applied,
//    after all letters. If the redrive rolls back, the row is there and the event is parked.
//  - R3 comes after all effects of the transaction, and does not wait. It would wait for a batch
//    that parks behind, which may wait for rows of a target that R2 has written: a deadlock. So a
//    key without letters may stay; the next redrive removes it.
//  - A redelivery while the first delivery is being parked or redriven. N1 waits for the other's
//    row of the inbox. Then the event is a duplicate, and what follows in the batch looks for the
//    key (N2) after that. With N2 before N1, or with one snapshot for both, it would not see it.
//  - A first failure while the key is being deleted (F1 after R4): F1 waits; then it is the first
//    event of a new parked key.
//  - A crash, or a lost connection: the transaction rolls back. A letter is removed with its
//    effect, and the lock of its key is gone: nothing else says that a session works on the key.
//
// N2 needs a new snapshot, so an inbox whose keys may be parked takes READ COMMITTED only.
// Whether they may is postbox.inbox.park_keys, so that other inboxes pay nothing. It changes under
// a lock of the inbox that no session that applies events has (inbox_registration.h), and each
// looks again after it has got its own (inbox_cache.h): none is at work with an older value.
//
// Retries. parked_key.next_retry_at says when a key is due; a claim moves it on before the work
// begins, and commits. So keys take turns whatever becomes of a retry, also one that is killed. The
// backoff is that of a subscription of the inbox; after parked_max_attempts it is infinity.
//
// All statements here run as the owner of Postbox's tables.
#ifndef POSTBOX_EXTENSION_APPLY_PARKED_KEYS_H_
#define POSTBOX_EXTENSION_APPLY_PARKED_KEYS_H_

#include "extension/apply/inbox_cache.h"
#include "extension/rules/backoff.h"

namespace postbox {

// Why the event can be no part of a parked key; empty if it can.
std::string WhyNotParked(const InboxEvent& event);

// N2: which of the events that are new belong to a parked key.
std::vector<bool> FindParked(const Inbox& inbox, const std::vector<InboxEvent>& events,
                             const std::vector<bool>& fresh);

// F1 and F2: the key of the event is parked, and stays so until the transaction ends.
void ParkKey(const Inbox& inbox, const InboxEvent& event);

// When the first event of a key is retried.
struct RetryPolicy {
  pubsub::BackoffPolicy backoff;
  int max_attempts;

  // Before the retry with this number, from 1 on.
  std::chrono::milliseconds DelayBefore(int retry) const {
    return pubsub::BackoffDelay(backoff, retry, pubsub::JitterRandom());
  }
};
RetryPolicy RetryPolicyOf(Oid inbox);

// The row of a key, locked by R1.
struct ParkedKey {
  Datum aggregate_id;  // text
  int retries;
};
enum class Wait { kWait, kSkipLocked };
std::optional<ParkedKey> LockParkedKey(Oid inbox, Datum aggregate_id, Wait wait);

// The key that has been due for longest, which no other session works on. It is due again, as if
// its retry failed, after the backoff.
std::optional<std::string> ClaimParkedKey(Oid inbox);

// `delay`: from now on; nothing: infinity.
void SetRetry(Oid inbox, const ParkedKey& key, int retries,
              std::optional<std::chrono::milliseconds> delay);

// R3 and R4. False if the key stays. A letter that became visible late, with a smaller id than
// others, keeps the key, too.
bool RemoveParkedKey(Oid inbox, Datum aggregate_id);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_PARKED_KEYS_H_
