// Dead letters: recording an event that its consumer gives up, and applying it again.
//
// postbox.dead_letter is written as its owner. The owner of an inbox, and operators, see and delete
// the rows of that inbox through row level security, and changes none. The inbox keeps the event as
// `rejected`, so a redelivery is a duplicate; redriving deletes that row and applies the event like
// a new one.
#include "extension/base/act_as.h"
#include "extension/base/arguments.h"
#include "extension/base/relation.h"
#include "extension/base/subtransaction.h"
#include "extension/inbox/apply.h"

namespace postbox {
namespace {

// Acts as the owner of postbox.dead_letter, who may write it.
ActAs Registrar() { return ActAs(RelationOwner(PostboxRelation("dead_letter"))); }

constexpr char kFields[] =
    "event_id, event_type, aggregate_type, aggregate_id, version, payload, attributes, "
    "occurred_at";

void Record(const Inbox& inbox, const InboxEvent& event, const std::string& sqlstate,
            const std::string& text, int attempts) {
  // Never destroyed: the server is no longer usable when destructors of static objects run.
  static auto& record =
      *new Statement(std::string("INSERT INTO postbox.dead_letter (") + kFields +
                         ", inbox, sqlstate, error, attempts) "
                         "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
                     {TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT8OID, BYTEAOID, JSONBOID,
                      TIMESTAMPTZOID, REGCLASSOID, TEXTOID, TEXTOID, INT4OID});
  Datum values[kEventFields + 4];
  char nulls[kEventFields + 5] = "            ";
  for (size_t i = 0; i < kEventFields; ++i) {
    values[i] = event.values[i];
    if (event.nulls[i]) nulls[i] = 'n';
  }
  values[8] = ObjectIdGetDatum(inbox.relation());
  Pg([&] {
    values[9] = CStringGetTextDatum(sqlstate.c_str());
    values[10] = CStringGetTextDatum(text.c_str());
  });
  values[11] = Int32GetDatum(attempts);
  const ActAs registrar = Registrar();
  record.Run(values, nulls);
}

[[noreturn]] void ThrowNoDeadLetter(int64 id) {
  Throw(ERRCODE_UNDEFINED_OBJECT, "dead letter " + std::to_string(id) + " does not exist", "",
        "They are listed in postbox.dead_letter.");
}

Parameters Key(int64 id) {
  Parameters key;
  key.Add(INT8OID, Int64GetDatum(id));
  return key;
}

// Locks the dead letter and returns its inbox.
Oid LockDeadLetter(int64 id) {
  SpiConnection connection;
  FixedSearchPath search_path;
  const ActAs registrar = Registrar();
  Parameters key = Key(id);
  if (Run("SELECT inbox::oid FROM postbox.dead_letter WHERE id = $1 FOR UPDATE", key) == 0) {
    ThrowNoDeadLetter(id);
  }
  return OidColumn(0, 1);
}

InboxEvent ReadDeadLetter(int64 id) {
  const ActAs registrar = Registrar();
  Parameters key = Key(id);
  if (Run(std::string("SELECT ") + kFields + " FROM postbox.dead_letter WHERE id = $1", key) == 0) {
    ThrowNoDeadLetter(id);
  }
  InboxEvent event{};
  for (size_t i = 0; i < kEventFields; ++i) {
    event.values[i] = DatumColumn(0, static_cast<int>(i) + 1, &event.nulls[i]);
  }
  Pg([&] { FinishEvent(&event); });
  return event;
}

void RemoveDeadLetter(int64 id) {
  const ActAs registrar = Registrar();
  Parameters key = Key(id);
  Run("DELETE FROM postbox.dead_letter WHERE id = $1", key);
}

void NoteAttempt(int64 id, const PostgresError& error) {
  const ActAs registrar = Registrar();
  Parameters row = Key(id);
  row.AddText(error.SqlState()).AddText(ErrorText(error));
  Run("UPDATE postbox.dead_letter SET sqlstate = $2, error = $3, failed_at = now(), "
      "attempts = attempts + 1 WHERE id = $1",
      row);
}

Outcome Redrive(ApplySession& session, int64 id) {
  InboxEvent event = ReadDeadLetter(id);
  if (event.event_id.empty()) {
    Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
          "dead letter " + std::to_string(id) + " has no event_id",
          "It was recorded from a message that is no event, and cannot be applied.",
          "DELETE it from postbox.dead_letter when it is of no more use.");
  }
  Outcome outcome = Outcome::kRejected;
  try {
    InSubtransaction([&] {
      const Datum key = UUIDPGetDatum(&event.id);
      session.inbox().delete_rejected().Run(&key);
      outcome = ApplyOne(session, &event);
      RemoveDeadLetter(id);
    });
  } catch (const PostgresError& error) {
    if (!IsOfTheEvent(session.inbox(), &event, error)) throw;
    NoteAttempt(id, error);
    return Outcome::kRejected;
  }
  return outcome;
}

}  // namespace

Outcome RejectEvent(Inbox& inbox, const InboxEvent& event, const std::string& sqlstate,
                    const std::string& text, int attempts) {
  if (!event.event_id.empty() && !InsertEvent(inbox, event, Outcome::kRejected)) {
    return Outcome::kDuplicate;
  }
  Record(inbox, event, sqlstate, text, attempts);
  return Outcome::kRejected;
}

}  // namespace postbox

POSTBOX_FUNCTION(record_dead_letter) {
  using namespace postbox;
  return Guarded([&] {
    const Oid relation = OidArgument(fcinfo, 0, "inbox");
    const Datum composite = Argument(fcinfo, 1, "event");
    const std::string sqlstate = TextArgument(fcinfo, 2, "sqlstate");
    const std::string error = TextArgument(fcinfo, 3, "error");
    const int attempts = DatumGetInt32(Argument(fcinfo, 4, "attempts"));
    if (attempts < 1) Throw(ERRCODE_INVALID_PARAMETER_VALUE, "attempts must be at least 1");
    ApplySession session(relation);
    const InboxEvent event = Pg([&] { return EventOfComposite(composite); });
    return session.outcome(RejectEvent(session.inbox(), event, sqlstate, error, attempts));
  });
}

POSTBOX_FUNCTION(redrive_dead_letter) {
  using namespace postbox;
  return Guarded([&] {
    const int64 id = DatumGetInt64(Argument(fcinfo, 0, "id"));
    ApplySession session(LockDeadLetter(id), ApplySession::Callers::kAppliersAndOperators);
    return session.outcome(Redrive(session, id));
  });
}
