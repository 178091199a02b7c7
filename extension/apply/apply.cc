#include "extension/apply/apply.h"

#include "extension/apply/dead_letter.h"
#include "extension/apply/event_set.h"
#include "extension/apply/event_version.h"
#include "extension/apply/parked_keys.h"
#include "extension/apply/scratch_memory.h"
#include "extension/base/arguments.h"
#include "extension/base/message_bytes.h"
#include "extension/base/relation.h"
#include "extension/base/subtransaction.h"
#include "extension/lifecycle/commit_counts.h"
#include "extension/lifecycle/wakeup.h"
#include "extension/registry/inbox_registration.h"
#include "extension/rules/json_string.h"
#include "extension/rules/sqlstate_class.h"
#include "extension/trust/operator_role.h"

namespace postbox {
namespace {

Outcome Expected(const Inbox& inbox, const InboxEvent& event) {
  // An event without a type fails later; until then it has a row like one that is applied.
  if (event.IsNull(EventField::kEventType)) return Outcome::kApplied;
  return inbox.routes().Of(event.event_type) == nullptr ? Outcome::kIgnored : Outcome::kApplied;
}

// Runs the projections that take the event, then the handlers.
Outcome ApplyEffects(ApplySession& session, InboxEvent* event) {
  Inbox& inbox = session.inbox();
  if (event->IsNull(EventField::kEventType)) {
    Throw(ERRCODE_NULL_VALUE_NOT_ALLOWED, "event has no event_type",
          "The type says which projections and handlers take it.");
  }
  const Route* route = inbox.routes().Of(event->event_type);
  if (route == nullptr) return Outcome::kIgnored;
  route->RequireFit();
  if (inbox.runs_user_code()) session.PinEffects();  // the event before may have changed them
  bool applied = false;
  const AppliedVersion version(*event);
  PayloadJson payload(*event);
  for (const Route::Step& step : route->projections) {
    const Outcome outcome = step.projection->Apply(*event, &payload, step.deletes);
    applied = applied || outcome == Outcome::kApplied;
  }
  for (Handler* handler : route->handlers) {
    const Datum composite = Pg([&] { return CompositeOf(event); });
    FixedSearchPath search_path(handler->search_path.c_str());
    handler->call.Run(&composite);
    FreeRows();
    applied = true;
  }
  // A handler or a trigger may have written any rows, or the row of another key.
  if (applied && inbox.runs_user_code()) NotifyAppliedAtCommit();
  return applied ? Outcome::kApplied : Outcome::kStale;
}

// A trigger or a handler has altered something. Throws if that is what the event was written to.
void RequireStillFit(ApplySession& session, const InboxEvent& event) {
  const Route* route = session.inbox().routes().Of(event.event_type);
  if (route != nullptr) route->RequireFit();
}

Outcome ApplyEffectsOf(ApplySession& session, InboxEvent* event) {
  const std::shared_ptr<Inbox> inbox = session.shared_inbox();
  return NamingEvent(*event, *inbox, [&] {
    const Outcome outcome = ApplyEffects(session, event);
    if (!inbox->valid()) RequireStillFit(session, *event);
    return outcome;
  });
}

std::vector<const InboxEvent*> WithDifferentKeys(const std::vector<InboxEvent>& events) {
  const auto less = [](const InboxEvent* left, const InboxEvent* right) {
    return std::memcmp(left->id.data, right->id.data, UUID_LEN) < 0;
  };
  std::set<const InboxEvent*, decltype(less)> different(less);
  for (const InboxEvent& event : events) different.insert(&event);
  return {different.begin(), different.end()};
}

// Takes what belongs to a parked key out of the events that are new, and parks it.
void ParkFollowers(ApplySession& session, const std::vector<InboxEvent>& events,
                   std::vector<bool>* fresh, std::vector<Outcome>* outcomes) {
  const std::shared_ptr<Inbox> inbox = session.shared_inbox();
  if (!inbox->parks_keys()) return;
  std::vector<const InboxEvent*> followers;
  const std::vector<bool> parked = FindParked(*inbox, events, *fresh);
  for (size_t i = 0; i < events.size(); ++i) {
    if (!parked[i]) continue;
    RecordLetter(*inbox, events[i], nullptr, LetterPlace::kInParkedKey);
    (*fresh)[i] = false;
    (*outcomes)[i] = Outcome::kParked;
    followers.push_back(&events[i]);
  }
  inbox->rows().SetOutcome(followers, Outcome::kParked);
}

std::vector<Outcome> ApplyInOnePass(ApplySession& session, std::vector<InboxEvent>& events,
                                    MemoryContext scratch) {
  std::vector<Outcome> outcomes(events.size(), Outcome::kDuplicate);
  std::vector<bool> inserted;
  {
    ScratchMemory memory(scratch);
    Inbox& inbox = session.inbox();
    std::vector<Outcome> expected;
    for (const InboxEvent& event : events) expected.push_back(Expected(inbox, event));
    inserted = inbox.rows().InsertAll(events, expected);
    InboxRows& rows = session.inbox().rows();
    if (rows.has_triggers()) rows.Require(WithDifferentKeys(events));
    ParkFollowers(session, events, &inserted, &outcomes);
  }
  EventSet set(&session);
  for (size_t i = 0; i < events.size(); ++i) {
    if (!inserted[i]) continue;
    ScratchMemory memory(scratch);
    if (set.Take(&events[i], &outcomes[i])) continue;
    outcomes[i] = ApplyEffectsOf(session, &events[i]);
  }
  ScratchMemory memory(scratch);
  set.Write();
  std::vector<const InboxEvent*> fresh, stale;
  for (size_t i = 0; i < events.size(); ++i) {
    if (inserted[i]) fresh.push_back(&events[i]);
    if (outcomes[i] == Outcome::kStale) stale.push_back(&events[i]);
  }
  Inbox& inbox = session.inbox();
  inbox.rows().SetOutcome(stale, Outcome::kStale);
  if (inbox.runs_user_code()) inbox.rows().Require(fresh);
  return outcomes;
}

Outcome ApplyOrGiveUp(ApplySession& session, InboxEvent* event, OnError on_error) {
  Outcome outcome = Outcome::kApplied;
  for (bool again = session.nested();; again = true) {
    try {
      InSubtransaction([&] { outcome = ApplyOne(session, event, ApplyAs::kNew); });
      return outcome;
    } catch (const PostgresError& error) {
      Inbox& inbox = session.inbox();
      if (!IsOfTheEvent(inbox, event, error)) throw;
      // The missing right may have been granted between the error and the check.
      if (error.sqlstate == ERRCODE_INSUFFICIENT_PRIVILEGE && !again) continue;
      return GiveUp(inbox, *event, FailureOf(error), on_error);
    }
  }
}

std::vector<Outcome> ApplyOneByOne(ApplySession& session, std::vector<InboxEvent>& events,
                                   OnError on_error, MemoryContext scratch) {
  std::vector<Outcome> outcomes;
  for (InboxEvent& event : events) {
    ScratchMemory memory(scratch);
    outcomes.push_back(ApplyOrGiveUp(session, &event, on_error));
  }
  return outcomes;
}

}  // namespace

namespace {
int depth = 0;
}  // namespace

ApplySession::Depth::Depth() {
  Pg([] { check_stack_depth(); });
  if (depth == kMostNested) {
    Throw(ERRCODE_STATEMENT_TOO_COMPLEX, "events are nested too deeply",
          "A trigger or a handler applies an event, whose trigger or handler applies another one, "
          "and so on. At most " +
              std::to_string(kMostNested) + " nested calls are allowed.",
          "Emit an event to an outbox instead.");
  }
  ++depth;
}

ApplySession::Depth::~Depth() { --depth; }
bool ApplySession::Depth::nested() const { return depth > 1; }

ApplySession::ApplySession(Oid relation, Callers callers) : relation_(relation) {
  text_search_ = TextSearchConfig();
  PinEffects();
  const Oid caller = GetUserId();
  if (RelationName(relation).empty()) ThrowNoInbox(relation);
  const Oid owner = RelationOwner(relation);
  const bool by_owner = callers == Callers::kOwnersAndOperators;
  const bool allowed =
      by_owner
          ? MayActOn(relation, caller)
          : Pg([&] { return pg_class_aclcheck(relation, caller, ACL_INSERT) == ACLCHECK_OK; }) ||
                (callers != Callers::kAppliers && IsOperator(caller));
  if (!allowed) {
    Throw(ERRCODE_INSUFFICIENT_PRIVILEGE,
          "permission denied for inbox \"" + RelationName(relation) + "\"",
          by_owner ? "It takes the rights of its owner, or membership in postbox_operator."
                   : "INSERT on the inbox is the permission to apply events.");
  }
  owner_.emplace(owner, TrustIn(owner));
  inbox_ = Inbox::Find(relation, RowExclusiveLock);
}

const std::shared_ptr<Inbox>& ApplySession::shared_inbox() {
  if (!inbox_->valid()) inbox_ = Inbox::Find(relation_, RowExclusiveLock);
  return inbox_;
}

void AddContext(PostgresError* error, const std::string& line) {
  if (!error->context.empty()) error->context += '\n';
  error->context += line;
}

bool IsOfTheEvent(const Inbox& inbox, const InboxEvent* event, const PostgresError& error) {
  if (IsTransientSqlstate(error.SqlState())) return false;
  const Route* route = event == nullptr ? nullptr : inbox.routes().Of(event->event_type);
  if (route != nullptr && route->problem != nullptr) return false;
  if (error.sqlstate == ERRCODE_INSUFFICIENT_PRIVILEGE) inbox.routes().CheckRights();
  return true;
}

OnError OnErrorArgument(FunctionCallInfo fcinfo, int number) {
  const std::string on_error = TextArgument(fcinfo, number, "on_error");
  if (on_error == "raise") return OnError::kRaise;
  if (on_error == "reject") return OnError::kReject;
  if (on_error == "park_key") return OnError::kParkKey;
  Throw(ERRCODE_INVALID_PARAMETER_VALUE, "invalid on_error \"" + on_error + "\"", "",
        "It is raise, reject or park_key.");
}

void RequireParking(const Inbox& inbox) {
  if (!inbox.parks_keys()) {
    Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
          "keys of inbox " + inbox.name() + " may not be parked",
          "Sessions that apply events do not look for parked keys of this inbox.",
          "Its owner can run SELECT postbox.alter_inbox(..., park_keys => true), or create a "
          "subscription with on_error => 'park_key'.");
  }
  if (IsolationUsesXactSnapshot()) {
    Throw(ERRCODE_ACTIVE_SQL_TRANSACTION,
          "inbox " + inbox.name() + " needs isolation level READ COMMITTED",
          "Its keys may be parked, and an older snapshot does not show which.",
          "Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.");
  }
}

Outcome ApplyOne(ApplySession& session, InboxEvent* event, ApplyAs as) {
  const Outcome expected = Expected(session.inbox(), *event);
  if (!session.inbox().rows().Insert(*event, expected)) return Outcome::kDuplicate;
  if (as == ApplyAs::kNew && session.inbox().parks_keys()) {
    std::vector<bool> fresh{true};
    std::vector<Outcome> outcome{Outcome::kDuplicate};
    ParkFollowers(session, {*event}, &fresh, &outcome);
    if (!fresh[0]) return Outcome::kParked;
  }
  const Outcome outcome = ApplyEffectsOf(session, event);
  Inbox& inbox = session.inbox();
  if (outcome != expected) inbox.rows().SetOutcome({event}, outcome);
  if (inbox.runs_user_code()) inbox.rows().Require({event});
  return outcome;
}

std::vector<Outcome> ApplyEvents(ApplySession& session, std::vector<InboxEvent>& events,
                                 OnError on_error) {
  for (const InboxEvent& event : events) {
    if (event.IsNull(EventField::kEventId) || event.event_id.empty()) {
      Throw(ERRCODE_NULL_VALUE_NOT_ALLOWED, "event has no event_id",
            "Without it the inbox cannot tell whether it has seen the event before.",
            "postbox.record_dead_letter records a message that is not an event.");
    }
  }
  MemoryContext scratch = MakeScratch();
  if (events.empty()) {
    // With no events, a caller learns whether the configuration is the cause of its errors.
    session.inbox().routes().CheckUsable();
    return {};
  }
  if (on_error == OnError::kParkKey || session.inbox().parks_keys()) {
    RequireParking(session.inbox());
  }
  if (events.size() == 1) {
    if (on_error != OnError::kRaise) return ApplyOneByOne(session, events, on_error, scratch);
    return {ApplyOne(session, &events[0], ApplyAs::kNew)};
  }
  if (on_error == OnError::kRaise) return ApplyInOnePass(session, events, scratch);
  if (session.nested()) return ApplyOneByOne(session, events, on_error, scratch);

  std::vector<Outcome> outcomes;
  try {
    InSubtransaction([&] { outcomes = ApplyInOnePass(session, events, scratch); });
    return outcomes;
  } catch (const PostgresError& error) {
    if (!IsOfTheEvent(session.inbox(), nullptr, error)) throw;
  }
  return ApplyOneByOne(session, events, on_error, scratch);
}

namespace {

static_assert(kMetricOutcomes == kOutcomes);

// As ApplyEvents, and counts them when the transaction commits.
std::vector<Outcome> ApplyCounted(ApplySession& session, Oid inbox, std::vector<InboxEvent>& events,
                                  OnError on_error) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<Outcome> outcomes = ApplyEvents(session, events, on_error);
  if (outcomes.empty()) return outcomes;
  const auto took = std::chrono::steady_clock::now() - begin;
  OutcomeCounts* counts = CountApplyAtCommit(
      inbox, std::chrono::duration_cast<std::chrono::microseconds>(took).count());
  if (counts == nullptr) return outcomes;
  for (const Outcome outcome : outcomes) ++(*counts)[static_cast<size_t>(outcome)];
  return outcomes;
}

Datum ResultOfOne(ApplySession& session, Oid inbox, InboxEvent event, OnError on_error) {
  std::vector<InboxEvent> events{event};
  return session.outcome(ApplyCounted(session, inbox, events, on_error)[0]);
}

NullableDatum GivenPayload(FunctionCallInfo fcinfo) {
  return fcinfo->args[1 + static_cast<size_t>(EventField::kPayload)];
}

// inbox_apply with an argument for each field. The payload is a bytea.
Datum ApplyFields(FunctionCallInfo fcinfo, const NullableDatum& payload) {
  const Oid relation = OidArgument(fcinfo, 0, "inbox");
  const OnError on_error = OnErrorArgument(fcinfo, kEventFields + 1);
  ApplySession session(relation);
  InboxEvent event{};
  for (size_t i = 0; i < kEventFields; ++i) {
    const bool is_payload = i == static_cast<size_t>(EventField::kPayload);
    const NullableDatum& field = is_payload ? payload : fcinfo->args[i + 1];
    event.values[i] = field.value;
    event.nulls[i] = field.isnull;
  }
  Pg([&] { FinishEvent(&event); });
  return ResultOfOne(session, relation, event, on_error);
}

// What a driver gives for bytes without their type would be applied as something else.
Datum BytesOfPayloadText(Datum payload) {
  const text* plain = Pg([&] { return DatumGetTextPP(payload); });
  if (std::string_view(VARDATA_ANY(plain), VARSIZE_ANY_EXHDR(plain)).starts_with("\\x")) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, "payload is the text form of a bytea",
          "It begins with \"\\x\".", "Cast it: payload => (...)::bytea.");
  }
  return Pg([&] { return BytesOfText(PointerGetDatum(plain)); });
}

// The elements of the array `events`.
std::vector<InboxEvent> BatchOf(Datum array) {
  struct Elements {
    Datum* values;
    bool* nulls;
    int count;
  };
  const Elements elements = Pg([&] {
    ArrayType* events = DatumGetArrayTypeP(array);
    if (ARR_NDIM(events) > 1) {
      ereport(ERROR,
              (errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR), errmsg("events must have one dimension")));
    }
    Elements found{};
    deconstruct_array(events, ARR_ELEMTYPE(events), -1, false, TYPALIGN_DOUBLE, &found.values,
                      &found.nulls, &found.count);
    return found;
  });
  std::vector<InboxEvent> events(static_cast<size_t>(elements.count));
  for (size_t i = 0; i < events.size(); ++i) {
    if (elements.nulls[i]) Throw(ERRCODE_NULL_VALUE_NOT_ALLOWED, "events may not contain null");
    events[i] = Pg([&] { return EventOfComposite(elements.values[i]); });
  }
  return events;
}

// With where the event of an error is in `events`, from 1, if the error is one of an event. Short,
// because programs do not parse a JSON object of any length.
void PutDetailIntoJson(std::optional<size_t> position, PostgresError* error) {
  std::string json = "{";
  if (position) json += "\"event\": " + std::to_string(*position + 1);
  if (!error->detail.empty()) {
    json += position ? ", \"detail\": " : "\"detail\": ";
    AppendJsonString(Shortened(error->detail), &json);
  }
  error->detail = json + "}";
}

Datum ApplyBatch(FunctionCallInfo fcinfo, bool json_detail) {
  const Oid relation = OidArgument(fcinfo, 0, "inbox");
  const Datum array = Argument(fcinfo, 1, "events");
  const OnError on_error = OnErrorArgument(fcinfo, 2);
  Oid outcome_type = InvalidOid;
  std::vector<Datum> results;
  {
    ApplySession session(relation);
    std::vector<InboxEvent> events = BatchOf(array);
    try {
      for (const Outcome outcome : ApplyCounted(session, relation, events, on_error)) {
        results.push_back(session.outcome(outcome));
      }
    } catch (EventError& error) {
      if (json_detail) PutDetailIntoJson(error.event - events.data(), &error);
      throw;
    } catch (PostgresError& error) {
      if (json_detail) PutDetailIntoJson(std::nullopt, &error);
      throw;
    }
    outcome_type = session.outcome_type();
  }
  return Pg([&] {
    return PointerGetDatum(construct_array(results.data(), static_cast<int>(results.size()),
                                           outcome_type, sizeof(Oid), true, TYPALIGN_INT));
  });
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(inbox_apply) {
  using namespace postbox;
  return Guarded([&] {
    const Oid relation = OidArgument(fcinfo, 0, "inbox");
    const Datum composite = Argument(fcinfo, 1, "event");
    const OnError on_error = OnErrorArgument(fcinfo, 2);
    ApplySession session(relation);
    const InboxEvent event = Pg([&] { return EventOfComposite(composite); });
    return ResultOfOne(session, relation, event, on_error);
  });
}

POSTBOX_FUNCTION(inbox_apply_fields) {
  return postbox::Guarded(
      [&] { return postbox::ApplyFields(fcinfo, postbox::GivenPayload(fcinfo)); });
}

POSTBOX_FUNCTION(inbox_apply_text) {
  using namespace postbox;
  return Guarded([&] {
    NullableDatum payload = GivenPayload(fcinfo);
    if (!payload.isnull) payload.value = BytesOfPayloadText(payload.value);
    return ApplyFields(fcinfo, payload);
  });
}

POSTBOX_FUNCTION(inbox_apply_jsonb) {
  using namespace postbox;
  return Guarded([&] {
    NullableDatum payload = GivenPayload(fcinfo);
    if (!payload.isnull) payload.value = Pg([&] { return BytesOfJsonb(payload.value); });
    return ApplyFields(fcinfo, payload);
  });
}

POSTBOX_FUNCTION(inbox_apply_batch) {
  using namespace postbox;
  return Guarded(
      [&] { return ApplyBatch(fcinfo, DatumGetBool(Argument(fcinfo, 3, "json_detail"))); });
}
