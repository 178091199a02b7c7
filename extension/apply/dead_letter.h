// The rows of postbox.dead_letter, which are written as its owner. The owner of an inbox, and
// operators, see those of that inbox through row level security, and change none.
//
// The inbox keeps the event of a dead letter as `rejected`, or as `parked` if it is part of a
// parked key (parked_keys.h), so a redelivery is a duplicate.
#ifndef POSTBOX_EXTENSION_APPLY_DEAD_LETTER_H_
#define POSTBOX_EXTENSION_APPLY_DEAD_LETTER_H_

#include "extension/apply/apply.h"

namespace postbox {

// Why an event was given up.
struct Failure {
  std::string sqlstate;
  std::string text;
  int attempts;
};
// The text, or its beginning and "..." if it is too long to be kept.
std::string Shortened(const std::string& text);

// After one attempt.
Failure FailureOf(const PostgresError& error);

enum class LetterPlace { kOutsideOfKeys, kInParkedKey };

// Stores the event. Without a failure it waits behind another one.
void RecordLetter(const Inbox& inbox, const InboxEvent& event, const Failure* failure,
                  LetterPlace place);

// Stores the event as a dead letter and marks it in the inbox: kRejected or kParked. kDuplicate,
// and nothing stored, if the inbox has the event already. An event without event_id is only stored.
// One that can be no part of a parked key is rejected: WhyNotParked, or `not_parked`.
Outcome GiveUp(Inbox& inbox, const InboxEvent& event, const Failure& failure, OnError on_error,
               const std::string& not_parked = "");

struct DeadLetter {
  int64 id;
  InboxEvent event;
  bool parked;
  bool has_raw;  // it can only be read
};
// A row as it is now, with its values in the current memory context.
std::optional<DeadLetter> ReadLetter(int64 id);
// The first letter of a parked key with a greater id.
std::optional<DeadLetter> ReadNextParked(Oid inbox, Datum aggregate_id, int64 after);

// Locks it. False if there is none.
bool LockLetter(int64 id);
[[noreturn]] void ThrowNoDeadLetter(int64 id);

void RemoveLetter(int64 id);
// A redrive failed: an attempt of the event, or not its fault.
void NoteFailure(int64 id, const PostgresError& error, bool is_attempt);
// A redrive had no effect. The letter is no longer part of a parked key.
void NoteOutcome(const ApplySession& session, int64 id, Outcome outcome);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_DEAD_LETTER_H_
