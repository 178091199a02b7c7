// Dead letters: recording an event that its consumer gives up, and applying it again.
//
// postbox.dead_letter is written as its owner. The owner of an inbox, and operators, see and delete
// the rows of that inbox through row level security, and changes none. The inbox keeps the event as
// `rejected`, so a redelivery is a duplicate; redriving deletes that row and applies the event like
// a new one. If that has no effect, since the event is stale, ignored or a duplicate, all of it is
// rolled back and the dead letter stays with that outcome: it may hold what no other event has.
//
// What cannot be stored as it is. The puller gives up messages, and a message is bytes: a text may
// be no UTF-8, hold a character that the encoding of the database does not have, or a NUL. So
// record_dead_letter also takes all fields as bytes. A field that is no text here is stored
// escaped, as encode(bytes, 'escape') has it, and its bytes in `raw`. Such a dead letter is for
// reading only.
#include "extension/apply/apply.h"
#include "extension/base/arguments.h"
#include "extension/base/relation.h"
#include "extension/base/subtransaction.h"
#include "extension/trust/act_as.h"
#include "extension/trust/registrar.h"

extern "C" {
#include <mb/pg_wchar.h>
}

namespace postbox {
namespace {

constexpr char kDeadLetterFields[] =
    "event_id, event_type, aggregate_type, aggregate_id, version, payload, attributes, "
    "occurred_at";

// An error text repeats the value that it is about, which may have megabytes.
constexpr int kLongestError = 8192;

std::string Shortened(const std::string& text) {
  if (text.size() <= kLongestError) return text;
  const int length = static_cast<int>(std::min<size_t>(text.size(), INT_MAX));
  const int kept = Pg([&] { return pg_mbcliplen(text.data(), length, kLongestError); });
  return text.substr(0, static_cast<size_t>(kept)) + "...";
}

void Record(const Inbox& inbox, const InboxEvent& event, const std::string& sqlstate,
            const std::string& text, int attempts) {
  // Never destroyed: the server is no longer usable when destructors of static objects run.
  static auto& record =
      *new Statement(std::string("INSERT INTO postbox.dead_letter (") + kDeadLetterFields +
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
  const std::string stored_text = Shortened(text);
  Pg([&] {
    values[9] = CStringGetTextDatum(sqlstate.c_str());
    values[10] = CStringGetTextDatum(stored_text.c_str());
  });
  values[11] = Int32GetDatum(attempts);
  const Registrar registrar("dead_letter");
  record.Run(values, nulls);
}

[[noreturn]] void ThrowNoDeadLetter(int64 id) {
  Throw(ERRCODE_UNDEFINED_OBJECT, "dead letter " + std::to_string(id) + " does not exist", "",
        "They are listed in postbox.dead_letter.");
}

Parameters KeyOfRow(int64 id) {
  Parameters key;
  key.Add(INT8OID, Int64GetDatum(id));
  return key;
}

// Locks the dead letter and returns its inbox.
Oid LockDeadLetter(int64 id) {
  SpiConnection connection;
  FixedSearchPath search_path;
  const Registrar registrar("dead_letter");
  Parameters key = KeyOfRow(id);
  if (Run("SELECT inbox::oid FROM postbox.dead_letter WHERE id = $1 FOR UPDATE", key) == 0) {
    ThrowNoDeadLetter(id);
  }
  return OidColumn(0, 1);
}

InboxEvent ReadDeadLetter(int64 id) {
  const Registrar registrar("dead_letter");
  Parameters key = KeyOfRow(id);
  if (Run(std::string("SELECT ") + kDeadLetterFields + " FROM postbox.dead_letter WHERE id = $1",
          key) == 0) {
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
  const Registrar registrar("dead_letter");
  Parameters key = KeyOfRow(id);
  Run("DELETE FROM postbox.dead_letter WHERE id = $1", key);
}

void NoteAttempt(int64 id, const PostgresError& error) {
  const Registrar registrar("dead_letter");
  Parameters row = KeyOfRow(id);
  row.AddText(error.SqlState()).AddText(Shortened(ErrorText(error)));
  Run("UPDATE postbox.dead_letter SET sqlstate = $2, error = $3, failed_at = now(), "
      "attempts = attempts + 1, outcome = NULL WHERE id = $1",
      row);
}

void NoteOutcome(const ApplySession& session, int64 id, Outcome outcome) {
  const Registrar registrar("dead_letter");
  Parameters row = KeyOfRow(id);
  row.Add(session.outcome_type(), session.outcome(outcome));
  Run("UPDATE postbox.dead_letter SET outcome = $2 WHERE id = $1", row);
}

// Rolls an application back that had no effect.
struct NoEffect {};

void RequireStoredAsReceived(int64 id) {
  const Registrar registrar("dead_letter");
  Parameters key = KeyOfRow(id);
  Run("SELECT raw IS NOT NULL FROM postbox.dead_letter WHERE id = $1", key);
  if (!BoolColumn(0, 1)) return;
  Throw(
      ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
      "dead letter " + std::to_string(id) + " cannot be applied as it was received",
      "The database cannot hold some of its fields as text. Their bytes are in column raw.",
      "Process those bytes by hand, then remove the dead letter with postbox.discard_dead_letter.");
}

Outcome Redrive(ApplySession& session, int64 id) {
  InboxEvent event = ReadDeadLetter(id);
  if (event.event_id.empty()) {
    Throw(
        ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        "dead letter " + std::to_string(id) + " has no event_id",
        "It was recorded from a message that is not an event, and cannot be applied.",
        "Run postbox.discard_dead_letter(" + std::to_string(id) + ") when it is no longer needed.");
  }
  RequireStoredAsReceived(id);
  Outcome outcome = Outcome::kRejected;
  try {
    InSubtransaction([&] {
      session.inbox().rows().DeleteRejected(event);
      outcome = ApplyOne(session, &event);
      if (outcome != Outcome::kApplied) throw NoEffect();
      RemoveDeadLetter(id);
    });
  } catch (const NoEffect&) {
    NoteOutcome(session, id, outcome);
  } catch (const PostgresError& error) {
    if (!IsOfTheEvent(session.inbox(), &event, error)) throw;
    NoteAttempt(id, error);
    return Outcome::kRejected;
  }
  return outcome;
}

// The fields of an event as bytes, in the order of postbox.event.
class BytesEvent {
 public:
  explicit BytesEvent(FunctionCallInfo fcinfo, int first) {
    for (size_t i = 0; i < kEventFields; ++i) {
      const NullableDatum& argument = fcinfo->args[static_cast<size_t>(first) + i];
      event_.values[i] = argument.value;
      event_.nulls[i] = argument.isnull;
      const Oid type = EventFieldType(static_cast<EventField>(i));
      if (argument.isnull || (type != TEXTOID && type != JSONBOID)) continue;
      if (type == TEXTOID) {
        SetText(i);
      } else {
        SetJson(i);
      }
    }
    Pg([&] { FinishEvent(&event_); });
  }

  const InboxEvent& event() const { return event_; }
  // {"field": "its bytes in hex"} of those that are no text here; empty if there are none.
  std::string Raw() const { return raw_.empty() ? "" : "{" + raw_ + "}"; }

  // The text of the bytes in the encoding of the database; nothing if there is none.
  static std::optional<Datum> TextOf(Datum bytes) {
    Datum text{0};
    const auto convert = [&] {
      Pg([&] {
        bytea* packed = DatumGetByteaPP(bytes);
        const int length = static_cast<int>(VARSIZE_ANY_EXHDR(packed));
        text = CStringGetTextDatum(
            pg_any_to_server(pnstrdup(VARDATA_ANY(packed), length), length, PG_UTF8));
      });
    };
    if (!Succeeds(convert)) return std::nullopt;
    return text;
  }
  static Datum Escaped(Datum bytes) {
    return Pg(
        [&] { return DirectFunctionCall2(binary_encode, bytes, CStringGetTextDatum("escape")); });
  }

 private:
  template <class F>
  static bool Succeeds(const F& f) {
    try {
      InSubtransaction(f);
      return true;
    } catch (const PostgresError& error) {
      // Class 22: the value is at fault. Too deep JSON is 54001.
      const bool of_the_value =
          error.SqlState().substr(0, 2) == "22" || error.sqlstate == ERRCODE_STATEMENT_TOO_COMPLEX;
      if (!of_the_value) throw;
      return false;
    }
  }

  void SetText(size_t field) {
    if (const std::optional<Datum> text = TextOf(event_.values[field])) {
      event_.values[field] = *text;
      return;
    }
    AddRaw(field);
    event_.values[field] = Escaped(event_.values[field]);
  }

  void SetJson(size_t field) {
    const Datum bytes = event_.values[field];
    const std::optional<Datum> json = TextOf(bytes);
    const auto parse = [&] {
      Pg([&] {
        event_.values[field] =
            DirectFunctionCall1(jsonb_in, CStringGetDatum(TextDatumGetCString(*json)));
      });
    };
    if (json && Succeeds(parse)) return;
    event_.values[field] = bytes;
    AddRaw(field);
    event_.nulls[field] = true;
  }

  void AddRaw(size_t field) {
    const char* hex = Pg([&]() -> const char* {
      return TextDatumGetCString(
          DirectFunctionCall2(binary_encode, event_.values[field], CStringGetTextDatum("hex")));
    });
    raw_ += raw_.empty() ? "\"" : ", \"";
    raw_ += std::string(EventFieldName(static_cast<EventField>(field))) + "\": \"" + hex + "\"";
  }

  InboxEvent event_{};
  std::string raw_;
};

// The dead letter that this transaction has just recorded.
void SetRaw(const std::string& raw) {
  if (raw.empty()) return;
  const Registrar registrar("dead_letter");
  Parameters parameters;
  parameters.AddText(raw);
  Run("UPDATE postbox.dead_letter SET raw = $1::jsonb "
      "WHERE id = currval(pg_get_serial_sequence('postbox.dead_letter', 'id'))",
      parameters);
}

}  // namespace

Outcome RejectEvent(Inbox& inbox, const InboxEvent& event, const std::string& sqlstate,
                    const std::string& text, int attempts) {
  if (!event.event_id.empty() && !inbox.rows().Insert(event, Outcome::kRejected)) {
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

POSTBOX_FUNCTION(record_dead_letter_bytes) {
  using namespace postbox;
  return Guarded([&] {
    constexpr int kError = kEventFields + 2;
    const Oid relation = OidArgument(fcinfo, 0, "inbox");
    const std::string sqlstate = TextArgument(fcinfo, kError - 1, "sqlstate");
    const Datum error = Argument(fcinfo, kError, "error");
    const int attempts = DatumGetInt32(Argument(fcinfo, kError + 1, "attempts"));
    if (attempts < 1) Throw(ERRCODE_INVALID_PARAMETER_VALUE, "attempts must be at least 1");
    ApplySession session(relation);
    const BytesEvent received(fcinfo, 1);
    const std::optional<Datum> readable = BytesEvent::TextOf(error);
    const Datum shown = readable ? *readable : BytesEvent::Escaped(error);
    const std::string message = Pg([&]() -> const char* { return TextDatumGetCString(shown); });
    const Outcome outcome =
        RejectEvent(session.inbox(), received.event(), sqlstate, message, attempts);
    if (outcome == Outcome::kRejected) SetRaw(received.Raw());
    return session.outcome(outcome);
  });
}

// No role may DELETE from the table: with that it could LOCK it, and hold up all who record events.
POSTBOX_FUNCTION(discard_dead_letter) {
  using namespace postbox;
  return Guarded([&] {
    const int64 id = DatumGetInt64(Argument(fcinfo, 0, "id"));
    SpiConnection connection;
    FixedSearchPath search_path;
    Parameters key = KeyOfRow(id);
    // The policy of the table says who may see it, and so who may remove it.
    const bool there = Run("SELECT FROM postbox.dead_letter WHERE id = $1", key) > 0;
    if (there) RemoveDeadLetter(id);
    return BoolGetDatum(there);
  });
}

POSTBOX_FUNCTION(discard_dead_letters) {
  using namespace postbox;
  return Guarded([&] {
    struct Condition {
      const char* sql;
      Oid type;
    };
    const Oid outcome = Pg([] { return PostboxType("outcome"); });
    const Condition conditions[] = {
        {"inbox = $", REGCLASSOID},       {"aggregate_type = $", TEXTOID},
        {"aggregate_id = $", TEXTOID},    {"event_type = $", TEXTOID},
        {"sqlstate = $", TEXTOID},        {"outcome = $", outcome},
        {"failed_at < $", TIMESTAMPTZOID}};
    SpiConnection connection;
    FixedSearchPath search_path;
    Parameters filter;
    std::string where;
    for (size_t i = 0; i < std::size(conditions); ++i) {
      if (!HasArgument(fcinfo, static_cast<int>(i))) continue;
      filter.Add(conditions[i].type, fcinfo->args[i].value);
      where += (where.empty() ? " WHERE d." : " AND d.") + std::string(conditions[i].sql) +
               std::to_string(filter.size());
    }
    if (where.empty()) {
      Throw(ERRCODE_INVALID_PARAMETER_VALUE, "all arguments of discard_dead_letters are NULL", "",
            "Select dead letters by inbox, aggregate, event type or another argument.");
    }
    // The policy of the table says who may see them, and so who may remove them.
    const uint64 rows = Run("SELECT d.id FROM postbox.dead_letter d" + where, filter);
    std::vector<int64> ids;
    for (uint64 row = 0; row < rows; ++row) ids.push_back(Int64Column(row, 1));
    const Registrar registrar("dead_letter");
    Parameters found;
    found.Add(INT8ARRAYOID, Int64ArrayValue(ids));
    return Int64GetDatum(
        static_cast<int64>(Run("DELETE FROM postbox.dead_letter WHERE id = ANY ($1)", found)));
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
