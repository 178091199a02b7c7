#include "extension/apply/dead_letter.h"

#include "extension/apply/parked_keys.h"
#include "extension/base/relation.h"
#include "extension/base/statement.h"
#include "extension/trust/registrar.h"

extern "C" {
#include <mb/pg_wchar.h>
#include <utils/datum.h>
}

namespace postbox {
namespace {

#define POSTBOX_FIELDS                                                                 \
  "event_id, event_type, aggregate_type, aggregate_id, version, payload, attributes, " \
  "occurred_at"

// What a dead letter says about an error.
std::string ErrorText(const PostgresError& error) {
  return error.detail.empty() ? error.message : error.message + "\nDETAIL: " + error.detail;
}

Parameters KeyOfRow(int64 id) {
  Parameters key;
  key.Add(INT8OID, Int64GetDatum(id));
  return key;
}

// A letter of the last statement: POSTBOX_FIELDS, id, parked, raw IS NOT NULL.
DeadLetter LetterOfRow() {
  DeadLetter letter{};
  constexpr int kId = kEventFields + 1;
  for (size_t i = 0; i < kEventFields; ++i) {
    const Datum value = DatumColumn(0, static_cast<int>(i) + 1, &letter.event.nulls[i]);
    const Oid type = EventFieldType(static_cast<EventField>(i));
    const bool by_value = type == INT8OID || type == TIMESTAMPTZOID;
    if (letter.event.nulls[i]) continue;
    letter.event.values[i] = Pg([&] { return datumCopy(value, by_value, by_value ? 8 : -1); });
  }
  letter.id = Int64Column(0, kId);
  letter.parked = BoolColumn(0, kId + 1);
  letter.has_raw = BoolColumn(0, kId + 2);
  FreeRows();
  Pg([&] { FinishEvent(&letter.event); });
  return letter;
}

#define POSTBOX_LETTER \
  "SELECT " POSTBOX_FIELDS ", id, parked, raw IS NOT NULL FROM postbox.dead_letter "

}  // namespace

// An error text repeats the value that it is about, which may have megabytes.
constexpr int kLongestError = 8192;

std::string Shortened(const std::string& text) {
  if (text.size() <= kLongestError) return text;
  const int length = static_cast<int>(std::min<size_t>(text.size(), INT_MAX));
  const int kept = Pg([&] { return pg_mbcliplen(text.data(), length, kLongestError); });
  return text.substr(0, static_cast<size_t>(kept)) + "...";
}

Failure FailureOf(const PostgresError& error) { return {error.SqlState(), ErrorText(error), 1}; }

void RecordLetter(const Inbox& inbox, const InboxEvent& event, const Failure* failure,
                  LetterPlace place) {
  // Never destroyed: the server is no longer usable when destructors of static objects run.
  static auto& record =
      *new Statement("INSERT INTO postbox.dead_letter (" POSTBOX_FIELDS
                     ", inbox, attempts, parked, sqlstate, error) "
                     "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
                     {TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT8OID, BYTEAOID, JSONBOID,
                      TIMESTAMPTZOID, REGCLASSOID, INT4OID, BOOLOID, TEXTOID, TEXTOID});
  Datum values[kEventFields + 5];
  char nulls[kEventFields + 6] = "             ";
  for (size_t i = 0; i < kEventFields; ++i) {
    values[i] = event.values[i];
    if (event.nulls[i]) nulls[i] = 'n';
  }
  values[8] = ObjectIdGetDatum(inbox.relation());
  values[9] = Int32GetDatum(failure == nullptr ? 0 : failure->attempts);
  values[10] = BoolGetDatum(place == LetterPlace::kInParkedKey);
  if (failure == nullptr) {
    nulls[11] = nulls[12] = 'n';
  } else {
    values[11] = TextValue(failure->sqlstate);
    values[12] = TextValue(Shortened(failure->text));
  }
  const Registrar registrar("dead_letter");
  record.Run(values, nulls);
}

Outcome GiveUp(Inbox& inbox, const InboxEvent& event, const Failure& failure, OnError on_error,
               const std::string& not_parked) {
  Failure recorded = failure;
  bool parks = on_error == OnError::kParkKey;
  if (parks) {
    RequireParking(inbox);
    const std::string why = not_parked.empty() ? WhyNotParked(event) : not_parked;
    parks = why.empty();
    if (!parks) recorded.text = "not parked, because " + why + ": " + recorded.text;
  }
  const Outcome outcome = parks ? Outcome::kParked : Outcome::kRejected;
  if (!event.event_id.empty() && !inbox.rows().Insert(event, outcome)) return Outcome::kDuplicate;
  if (parks) ParkKey(inbox, event);
  RecordLetter(inbox, event, &recorded,
               parks ? LetterPlace::kInParkedKey : LetterPlace::kOutsideOfKeys);
  return outcome;
}

void ThrowNoDeadLetter(int64 id) {
  Throw(ERRCODE_UNDEFINED_OBJECT, "dead letter " + std::to_string(id) + " does not exist", "",
        "They are listed in postbox.dead_letter.");
}

bool LockLetter(int64 id) {
  const Registrar registrar("dead_letter");
  Parameters key = KeyOfRow(id);
  return Run("SELECT FROM postbox.dead_letter WHERE id = $1 FOR UPDATE", key) > 0;
}

std::optional<DeadLetter> ReadLetter(int64 id) {
  const Registrar registrar("dead_letter");
  Parameters key = KeyOfRow(id);
  if (Run(POSTBOX_LETTER "WHERE id = $1", key) == 0) return std::nullopt;
  return LetterOfRow();
}

std::optional<DeadLetter> ReadNextParked(Oid inbox, Datum aggregate_id, int64 after) {
  static auto& read = *new Statement(
      Statement::ByKey(POSTBOX_LETTER "WHERE inbox = $1 AND aggregate_id = $2 AND parked "
                                      "AND id > $3 ORDER BY id LIMIT 1",
                       {REGCLASSOID, TEXTOID, INT8OID}));
  const Registrar registrar("dead_letter");
  if (read.Run({ObjectIdGetDatum(inbox), aggregate_id, Int64GetDatum(after)}) == 0) {
    return std::nullopt;
  }
  return LetterOfRow();
}

void RemoveLetter(int64 id) {
  const Registrar registrar("dead_letter");
  Parameters key = KeyOfRow(id);
  Run("DELETE FROM postbox.dead_letter WHERE id = $1", key);
}

void NoteFailure(int64 id, const PostgresError& error, bool is_attempt) {
  const Registrar registrar("dead_letter");
  Parameters row = KeyOfRow(id);
  row.AddText(error.SqlState()).AddText(Shortened(ErrorText(error))).AddInt(is_attempt ? 1 : 0);
  Run("UPDATE postbox.dead_letter SET sqlstate = $2, error = $3, failed_at = clock_timestamp(), "
      "attempts = attempts + $4, outcome = NULL WHERE id = $1",
      row);
}

void NoteOutcome(const ApplySession& session, int64 id, Outcome outcome) {
  const Registrar registrar("dead_letter");
  Parameters row = KeyOfRow(id);
  row.Add(session.outcome_type(), session.outcome(outcome));
  Run("UPDATE postbox.dead_letter SET outcome = $2, parked = false WHERE id = $1", row);
}

}  // namespace postbox
