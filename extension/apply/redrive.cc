#include "extension/apply/redrive.h"

#include "extension/apply/scratch_memory.h"
#include "extension/base/relation.h"
#include "extension/base/subtransaction.h"
#include "extension/rules/sqlstate_class.h"

namespace postbox {
namespace {

// Rolls an application back that had no effect.
struct NoEffect {};

void RequireReadable(const DeadLetter& letter) {
  const std::string id = std::to_string(letter.id);
  if (letter.event.event_id.empty()) {
    Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, "dead letter " + id + " has no event_id",
          "It was recorded from a message that is not an event, and cannot be applied.",
          "Run postbox.discard_dead_letter(" + id + ") when it is no longer needed.");
  }
  if (!letter.has_raw) return;
  Throw(
      ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
      "dead letter " + id + " cannot be applied as it was received",
      "The database cannot hold some of its fields as text. Their bytes are in column raw.",
      "Process those bytes by hand, then remove the dead letter with postbox.discard_dead_letter.");
}

// Whether it is the event's error; if not, `error` becomes the cause.
bool IsAttempt(const Inbox& inbox, const InboxEvent& event, PostgresError* error) {
  try {
    return IsOfTheEvent(inbox, &event, *error);
  } catch (const PostgresError& cause) {
    *error = cause;
    return false;
  }
}

// The statement is cancelled, or the session ends.
bool EndsTheCall(const PostgresError& error) {
  return error.SqlState().substr(0, 2) == "57" && error.SqlState() != kPauseSqlstate;
}

// What takes the event is paused or broken: its key is tried again after about so long, so that
// many such keys cost little, and go on soon after the repair.
constexpr std::chrono::minutes kNotItsFault{1};

bool HadEffect(const DeadLetter& letter, Outcome outcome) {
  return outcome == Outcome::kApplied || (letter.parked && outcome == Outcome::kIgnored);
}

// After the last letter of a step.
void SettleKey(Oid inbox, const ParkedKey& key, const KeyStep& step, bool claimed) {
  if (!step.error) return SetRetry(inbox, key, 0, std::chrono::milliseconds(0));
  const RetryPolicy policy = RetryPolicyOf(inbox);
  // Another letter is the first one now.
  if (step.done() > 0) return SetRetry(inbox, key, step.is_attempt ? 1 : 0, policy.DelayBefore(1));
  if (!claimed) return;
  // The claim has counted the retry and moved it on.
  if (!step.is_attempt) {
    const auto later = std::min<std::chrono::milliseconds>(policy.backoff.cap, kNotItsFault) +
                       policy.DelayBefore(1) / 2;
    SetRetry(inbox, key, std::max(key.retries - 1, 0), later);
  } else if (key.retries >= policy.max_attempts) {
    SetRetry(inbox, key, key.retries, std::nullopt);
  }
}

}  // namespace

Redriven Redrive(ApplySession& session, DeadLetter& letter) {
  RequireReadable(letter);
  InboxEvent& event = letter.event;
  Redriven redriven{.outcome = Outcome::kRejected, .error = std::nullopt};
  try {
    InSubtransaction([&] {
      session.inbox().rows().DeleteGivenUp(event);
      redriven.outcome = ApplyOne(session, &event, ApplyAs::kRedriven);
      if (!HadEffect(letter, redriven.outcome)) throw NoEffect();
      RemoveLetter(letter.id);
    });
  } catch (const NoEffect&) {
    NoteOutcome(session, letter.id, redriven.outcome);
    session.inbox().rows().SetRejected(event);
  } catch (const PostgresError& raised) {
    if (EndsTheCall(raised)) throw;
    PostgresError error = raised;
    redriven.is_attempt = IsAttempt(session.inbox(), event, &error);
    // The letter keeps its own error while what takes it is paused.
    if (error.SqlState() != kPauseSqlstate) NoteFailure(letter.id, error, redriven.is_attempt);
    redriven.outcome = Outcome::kRejected;
    redriven.error = std::move(error);
  }
  return redriven;
}

std::optional<KeyStep> RedriveKey(ApplySession& session, Datum aggregate_id, bool claimed,
                                  Wait wait, const StepLimit& limit) {
  const Oid inbox = session.inbox().relation();
  const std::optional<ParkedKey> key = LockParkedKey(inbox, aggregate_id, wait);
  if (!key) return std::nullopt;
  KeyStep step;
  MemoryContext scratch = MakeScratch();
  int64 after = 0;
  while (!step.error && !step.more) {
    Pg([] { CHECK_FOR_INTERRUPTS(); });
    const ScratchMemory memory(scratch);
    std::optional<DeadLetter> letter = ReadNextParked(inbox, aggregate_id, after);
    step.emptied = !letter;
    if (step.emptied) break;
    step.more = step.done() >= limit.events ||
                (step.done() > 0 && Pg([] { return GetCurrentTimestamp(); }) >= limit.until);
    if (step.more) break;
    Redriven redriven = Redrive(session, *letter);
    after = letter->id;
    step.last = redriven.outcome;
    step.is_attempt = redriven.is_attempt;
    if (redriven.error) {
      step.error = std::move(redriven.error);
    } else {
      ++(HadEffect(*letter, redriven.outcome) ? step.applied : step.without_effect);
    }
  }
  SettleKey(inbox, *key, step, claimed);
  Pg([&] { MemoryContextDelete(scratch); });
  return step;
}

}  // namespace postbox
