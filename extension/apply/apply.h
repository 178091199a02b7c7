// Applying events to an inbox, in the caller's transaction.
//
// One event: INSERT its key into the inbox, ON CONFLICT DO NOTHING (no row: duplicate, and nothing
// else happens) -> the projections and handlers that take its type -> the outcome is in the
// inbox row. The row is written with the expected outcome, which is corrected if another one comes
// out.
//   applied    a projection changed, or a handler was called
//   stale      every projection has this version or a newer one, and there is no handler
//   ignored    nothing takes events of this type
//   rejected   an error of the event itself: its effects are rolled back, and it is recorded in
//              postbox.dead_letter
//   parked     the same, but what follows of its key is parked behind it (parked_keys.h); or it is
//              such a follower, and nothing was called
//
// A batch is applied in one pass, in which consecutive events for one target may be written
// together (event_set.h). If failed events are to be rejected, that is inside a subtransaction. If
// an event fails, the subtransaction is rolled back and the batch is run again, each event in its
// own: one bad event costs its batch once.
//
// Errors. Transient errors (extension/rules/sqlstate_class.h) are raised: the event is not the
// cause, so the transaction rolls back and nothing is recorded. Errors in the configuration are
// raised too: those of the inbox itself, projections and handlers that are broken or paused
// (Route), and missing rights (rights.h). All others belong to the event. The call says what
// becomes of them: they are raised, which is the default, or the event is recorded as rejected. No
// setting of the session says it: behind a pooler that shares sessions it may be another client's.
//
// Two sessions apply the same event. The second waits at its INSERT into the inbox until the first
// has ended: if that one commits, the event is a duplicate; if it rolls back, the second applies
// it. A batch inserts its keys in order, so two batches with the same events do not deadlock there.
//
// Calls in calls. A trigger or a handler may apply events, and their triggers and handlers too, up
// to kMostNested deep. Only the outermost batch is tried in one pass before its events are applied
// one by one: if each level ran its events twice, ten levels would run them a thousand times.
//
// The outcome is the truth. A trigger or a handler may also delete the event's row from the inbox,
// or alter or drop what the event was written to. So after the effects the inbox is looked up
// again, and where code of its owner can have run (Inbox::runs_user_code) its rows are counted.
//
// Rights: INSERT on the inbox is the permission to apply. Everything then runs as the inbox's
// owner, under a fixed search_path and fixed settings (effect_settings.h); in a security-restricted
// operation (no temporary tables, no deferred constraints) unless the owner is a member of the
// caller's role.
#ifndef POSTBOX_EXTENSION_APPLY_APPLY_H_
#define POSTBOX_EXTENSION_APPLY_APPLY_H_

#include "extension/apply/inbox_cache.h"
#include "extension/trust/act_as.h"
#include "extension/trust/effect_settings.h"

namespace postbox {

// Connected to SPI, acting as the owner of an inbox, for its lifetime.
class ApplySession {
 public:
  // Throws insufficient_privilege unless the current user is one of these: appliers may INSERT into
  // the inbox, owners have the rights of its owner; operators: operator_role.h.
  enum class Callers { kAppliers, kAppliersAndOperators, kOwnersAndOperators };
  explicit ApplySession(Oid relation, Callers callers = Callers::kAppliers);

  // What holds now. A call may replace it, so between two events only: a reference is not kept over
  // another call.
  Inbox& inbox() { return *shared_inbox(); }
  // The same, for who keeps it over another call.
  const std::shared_ptr<Inbox>& shared_inbox();
  Datum outcome(Outcome outcome) const { return inbox_->rows().ValueOf(outcome); }
  Oid outcome_type() const { return inbox_->rows().outcome_type(); }

  // Fixes the settings on which effects depend (effect_settings.h), for as long as it lives. Code
  // of users that has run may have changed them.
  void PinEffects() const { postbox::PinEffects(text_search_); }

  // Whether an event is being applied for which this call was made.
  bool nested() const { return depth_.nested(); }

 private:
  // How many calls there are around this one. Throws if there are too many.
  class Depth {
   public:
    Depth();
    ~Depth();
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    bool nested() const;
  };

  const Oid relation_;
  const Depth depth_;
  SpiConnection connection_;
  FixedSearchPath search_path_;
  std::string text_search_;
  std::optional<ActAs> owner_;
  std::shared_ptr<Inbox> inbox_;
};

// Adds a line to the context of an error.
void AddContext(PostgresError* error, const std::string& line);

// The error of one of the events that were given.
struct EventError : PostgresError {
  EventError(PostgresError error, const InboxEvent* of)
      : PostgresError(std::move(error)), event(of) {}
  const InboxEvent* event;
};

// Calls `apply`, with the event in its errors and in their context.
template <class F>
auto NamingEvent(const InboxEvent& event, const Inbox& inbox, F&& apply) -> decltype(apply()) {
  try {
    return apply();
  } catch (PostgresError& error) {
    AddContext(&error,
               "applying event \"" + std::string(event.event_id) + "\" to inbox " + inbox.name());
    throw EventError(std::move(error), &event);
  }
}

// What an event's own error does.
enum class OnError { kRaise, kReject, kParkKey };
// The argument on_error of a function.
OnError OnErrorArgument(FunctionCallInfo fcinfo, int number);
// Throws if keys of the inbox may not be parked, or not at this isolation level.
void RequireParking(const Inbox& inbox);

// Each event needs an event_id: one without is an error of the call. Bounded memory: what an event
// needs is freed when it is done.
std::vector<Outcome> ApplyEvents(ApplySession& session, std::vector<InboxEvent>& events,
                                 OnError on_error);

// How deep calls may be nested in one another.
inline constexpr int kMostNested = 16;

// Whether an event is new, or a dead letter whose turn it is.
enum class ApplyAs { kNew, kRedriven };
// The inbox row and the effects of one event, with no subtransaction. A new event of a parked key
// is parked.
Outcome ApplyOne(ApplySession& session, InboxEvent* event, ApplyAs as);

// Whether an error that was raised while an event was applied (nullptr: one of several) belongs to
// the event, so that it can be recorded with it: not if a projection or handler of its type is
// broken. Throws if a right is missing without which the event could not be applied:
// that is not the fault of the event.
bool IsOfTheEvent(const Inbox& inbox, const InboxEvent* event, const PostgresError& error);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_APPLY_H_
