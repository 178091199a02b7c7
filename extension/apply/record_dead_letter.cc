// postbox.record_dead_letter: a consumer gives an event up, or a message that is none.
//
// What cannot be stored as it is. The puller gives up messages, and a message is bytes: a text may
// be no UTF-8, hold a character that the encoding of the database does not have, or a NUL. So
// record_dead_letter also takes all fields as bytes. A field that is no text here is stored
// escaped, as encode(bytes, 'escape') has it, and its bytes in `raw`. Such a dead letter is for
// reading only, and is never part of a parked key.
#include "extension/apply/apply.h"
#include "extension/apply/dead_letter.h"
#include "extension/base/arguments.h"
#include "extension/base/relation.h"
#include "extension/base/subtransaction.h"
#include "extension/trust/registrar.h"

extern "C" {
#include <mb/pg_wchar.h>
}

namespace postbox {
namespace {

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

// What becomes of the event: on_error without raise.
OnError GiveUpArgument(FunctionCallInfo fcinfo, int number) {
  const OnError on_error = OnErrorArgument(fcinfo, number);
  if (on_error != OnError::kRaise) return on_error;
  Throw(ERRCODE_INVALID_PARAMETER_VALUE, "invalid on_error \"raise\"", "",
        "It is reject or park_key.");
}

int AttemptsArgument(FunctionCallInfo fcinfo, int number) {
  const int attempts = DatumGetInt32(Argument(fcinfo, number, "attempts"));
  if (attempts < 1) Throw(ERRCODE_INVALID_PARAMETER_VALUE, "attempts must be at least 1");
  return attempts;
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(record_dead_letter) {
  using namespace postbox;
  return Guarded([&] {
    const Oid relation = OidArgument(fcinfo, 0, "inbox");
    const Datum composite = Argument(fcinfo, 1, "event");
    const std::string sqlstate = TextArgument(fcinfo, 2, "sqlstate");
    const std::string error = TextArgument(fcinfo, 3, "error");
    const int attempts = AttemptsArgument(fcinfo, 4);
    const OnError on_error = GiveUpArgument(fcinfo, 5);
    ApplySession session(relation);
    const InboxEvent event = Pg([&] { return EventOfComposite(composite); });
    return session.outcome(GiveUp(session.inbox(), event, {sqlstate, error, attempts}, on_error));
  });
}

POSTBOX_FUNCTION(record_dead_letter_bytes) {
  using namespace postbox;
  return Guarded([&] {
    constexpr int kError = kEventFields + 2;
    const Oid relation = OidArgument(fcinfo, 0, "inbox");
    const std::string sqlstate = TextArgument(fcinfo, kError - 1, "sqlstate");
    const Datum error = Argument(fcinfo, kError, "error");
    const int attempts = AttemptsArgument(fcinfo, kError + 1);
    const OnError on_error = GiveUpArgument(fcinfo, kError + 2);
    ApplySession session(relation);
    const BytesEvent received(fcinfo, 1);
    const std::optional<Datum> readable = BytesEvent::TextOf(error);
    const Datum shown = readable ? *readable : BytesEvent::Escaped(error);
    const std::string message = Pg([&]() -> const char* { return TextDatumGetCString(shown); });
    const Outcome outcome =
        GiveUp(session.inbox(), received.event(), {sqlstate, message, attempts}, on_error,
               received.Raw().empty() ? "" : "it has bytes that are no text");
    if (outcome == Outcome::kRejected) SetRaw(received.Raw());
    return session.outcome(outcome);
  });
}
