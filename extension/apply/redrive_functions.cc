// postbox.redrive_dead_letter and redrive_dead_letters, for people; claim_parked_key and
// redrive_parked_key, for pullers.
//
// The row of a key is locked before its letters: a letter of a parked key is never locked first.
#include "extension/apply/letter_filter.h"
#include "extension/apply/redrive.h"
#include "extension/apply/scratch_memory.h"
#include "extension/base/arguments.h"
#include "extension/base/relation.h"
#include "extension/trust/registrar.h"

namespace postbox {
namespace {

constexpr StepLimit kOneEvent{1, DT_NOEND};

Oid InboxOfLetter(int64 id) {
  SpiConnection connection;
  FixedSearchPath search_path;
  const Registrar registrar("dead_letter");
  Parameters key;
  key.Add(INT8OID, Int64GetDatum(id));
  if (Run("SELECT inbox::oid FROM postbox.dead_letter WHERE id = $1", key) == 0) {
    ThrowNoDeadLetter(id);
  }
  return OidColumn(0, 1);
}

// Of an inbox whose keys may be parked.
void RequireSnapshots(ApplySession& session) {
  if (session.inbox().parks_keys()) RequireParking(session.inbox());
}

[[noreturn]] void ThrowNotFirst(int64 id, int64 first) {
  Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        "dead letter " + std::to_string(id) + " is not the first event of its parked key",
        "Dead letter " + std::to_string(first) + " comes before it.",
        "Redrive the key with postbox.redrive_dead_letters(..., aggregate_id => ...).");
}

// The letter is the first of its parked key: its outcome. Nothing if it is no longer parked.
std::optional<Outcome> RedriveFirst(ApplySession& session, const DeadLetter& letter) {
  const Oid inbox = session.inbox().relation();
  const Datum key = letter.event.Value(EventField::kAggregateId);
  if (!LockParkedKey(inbox, key, Wait::kWait)) return std::nullopt;
  const std::optional<DeadLetter> first = ReadNextParked(inbox, key, 0);
  const std::optional<DeadLetter> now = ReadLetter(letter.id);
  if (!first || !now || !now->parked) return std::nullopt;
  if (first->id != letter.id) ThrowNotFirst(letter.id, first->id);
  const std::optional<KeyStep> step = RedriveKey(session, key, false, Wait::kWait, kOneEvent);
  if (step->error && !step->is_attempt) throw PostgresError(*step->error);
  if (step->emptied) RemoveParkedKey(inbox, key);
  return step->last;
}

Outcome RedriveOne(ApplySession& session, int64 id) {
  RequireSnapshots(session);
  std::optional<DeadLetter> letter = ReadLetter(id);
  if (letter && letter->parked) {
    if (const auto outcome = RedriveFirst(session, *letter)) return *outcome;
  }
  if (!LockLetter(id) || !(letter = ReadLetter(id))) ThrowNoDeadLetter(id);
  const Redriven redriven = Redrive(session, *letter);
  if (redriven.error && !redriven.is_attempt) throw PostgresError(*redriven.error);
  return redriven.outcome;
}

struct Totals {
  int64 applied = 0;
  int64 without_effect = 0;
  int64 failed = 0;
  int64 remaining = 0;
  int64 tried() const { return applied + without_effect + failed; }
};

// Those outside of keys, in the order of their last attempts: one that fails again comes last.
std::vector<int64> MatchingLetters(LetterFilter& filter, bool has_outcome) {
  const Registrar registrar("dead_letter");
  const uint64 rows =
      Run("SELECT d.id FROM postbox.dead_letter d WHERE NOT d.parked AND d.raw IS NULL "
          "AND d.event_id <> ''" +
              std::string(has_outcome ? "" : " AND d.outcome IS NULL") + filter.where() +
              " ORDER BY d.failed_at, d.id",
          filter.parameters());
  std::vector<int64> ids;
  for (uint64 row = 0; row < rows; ++row) ids.push_back(Int64Column(row, 1));
  return ids;
}

struct MatchingKey {
  std::string aggregate_id;
  int64 events;
};

// Those whose first event matches, in the same order.
std::vector<MatchingKey> MatchingKeys(LetterFilter& filter) {
  const Registrar registrar("dead_letter");
  const uint64 rows =
      Run("SELECT k.aggregate_id, (SELECT count(*) FROM postbox.dead_letter e "
          "WHERE e.inbox = k.inbox AND e.aggregate_id = k.aggregate_id AND e.parked) "
          "FROM postbox.parked_key k CROSS JOIN LATERAL (SELECT f.* FROM postbox.dead_letter f "
          "WHERE f.inbox = k.inbox AND f.aggregate_id = k.aggregate_id AND f.parked "
          "ORDER BY f.id LIMIT 1) d WHERE true" +
              filter.where() + " ORDER BY d.failed_at, d.id",
          filter.parameters());
  std::vector<MatchingKey> keys;
  for (uint64 row = 0; row < rows; ++row) keys.push_back({TextColumn(row, 1), Int64Column(row, 2)});
  return keys;
}

// Keys without letters, which a redrive could not remove.
void RemoveEmptyKeys(Oid inbox) {
  std::vector<std::string> names;
  {
    const Registrar registrar("dead_letter");
    Parameters key;
    key.AddOid(REGCLASSOID, inbox);
    names = TextColumns(Run("SELECT k.aggregate_id FROM postbox.parked_key k WHERE k.inbox = $1 "
                            "AND NOT EXISTS (SELECT FROM postbox.dead_letter d WHERE d.inbox = $1 "
                            "AND d.aggregate_id = k.aggregate_id AND d.parked)",
                            key),
                        1);
  }
  for (const std::string& name : names) RemoveParkedKey(inbox, TextValue(name));
}

void RedriveLetters(ApplySession& session, const std::vector<int64>& ids, int64 most,
                    Totals* totals) {
  MemoryContext scratch = MakeScratch();
  for (const int64 id : ids) {
    if (totals->tried() >= most) {
      ++totals->remaining;
      continue;
    }
    Pg([] { CHECK_FOR_INTERRUPTS(); });
    const ScratchMemory memory(scratch);
    if (!LockLetter(id)) continue;
    std::optional<DeadLetter> letter = ReadLetter(id);
    const Redriven redriven = Redrive(session, *letter);
    ++(redriven.error                          ? totals->failed
       : redriven.outcome == Outcome::kApplied ? totals->applied
                                               : totals->without_effect);
  }
}

void RedriveKeys(ApplySession& session, const std::vector<MatchingKey>& keys, int64 most,
                 Totals* totals) {
  for (const MatchingKey& key : keys) {
    if (totals->tried() >= most) {
      totals->remaining += key.events;
      continue;
    }
    const StepLimit limit{most - totals->tried(), DT_NOEND};
    const Datum name = TextValue(key.aggregate_id);
    // A session that works on the key may wait for what this one has written.
    const Wait wait = totals->tried() == 0 ? Wait::kWait : Wait::kSkipLocked;
    const std::optional<KeyStep> step = RedriveKey(session, name, false, wait, limit);
    if (!step) {
      if (wait == Wait::kSkipLocked) totals->remaining += key.events;
      continue;
    }
    totals->applied += step->applied;
    totals->without_effect += step->without_effect;
    if (step->error) ++totals->failed;
    if (step->more) totals->remaining += std::max<int64>(key.events - step->done(), 1);
  }
}

Totals RedriveAll(FunctionCallInfo fcinfo, ApplySession& session, bool dry_run, int64 most) {
  LetterFilter filter(fcinfo);
  const std::vector<int64> ids = MatchingLetters(filter, HasArgument(fcinfo, 5));
  const std::vector<MatchingKey> keys = MatchingKeys(filter);
  Totals totals;
  if (dry_run) most = 0;
  RedriveLetters(session, ids, most, &totals);
  RedriveKeys(session, keys, most, &totals);
  if (!dry_run) RemoveEmptyKeys(session.inbox().relation());
  return totals;
}

// The row of a function that returns a table. Needs SPI.
void ReturnRow(FunctionCallInfo fcinfo, const std::string& sql, Parameters& values) {
  ReturnRows(fcinfo, Run(sql, values));
}

void ReturnTotals(FunctionCallInfo fcinfo, const Totals& totals) {
  Parameters row;
  for (const int64 number :
       {totals.applied, totals.without_effect, totals.failed, totals.remaining}) {
    row.Add(INT8OID, Int64GetDatum(number));
  }
  ReturnRow(fcinfo, "SELECT $1, $2, $3, $4", row);
}

void Claim(FunctionCallInfo fcinfo, ApplySession& session, bool count) {
  const Oid inbox = session.inbox().relation();
  const std::optional<std::string> key = ClaimParkedKey(inbox);
  Parameters row;
  row.AddTextOrNull(key).AddOid(REGCLASSOID, inbox).Add(BOOLOID, BoolGetDatum(count));
  const Registrar registrar("dead_letter");
  ReturnRow(
      fcinfo,
      "SELECT $1, CASE WHEN $3 THEN (SELECT count(*) FROM postbox.parked_key k "
      "WHERE k.inbox = $2) END, CASE WHEN $3 THEN e.events END, CASE WHEN $3 THEN e.bytes END "
      "FROM (SELECT count(*) AS events, coalesce(sum(coalesce(octet_length(d.payload), 0) "
      "+ coalesce(pg_column_size(d.attributes), 0)), 0)::bigint AS bytes "
      "FROM postbox.dead_letter d WHERE $3 AND d.inbox = $2 AND d.parked) e",
      row);
}

TimestampTz TimeAfter(Datum interval) {
  return Pg([&] { return GetCurrentTimestamp(); }) + Microseconds(interval);
}

void RedriveClaimed(FunctionCallInfo fcinfo, ApplySession& session) {
  const StepLimit limit{DatumGetInt32(Argument(fcinfo, 3, "max_events")),
                        TimeAfter(Argument(fcinfo, 2, "max_time"))};
  if (limit.events < 1) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, "max_events must be at least 1");
  }
  const std::optional<KeyStep> step =
      RedriveKey(session, Argument(fcinfo, 1, "aggregate_id"), true, Wait::kSkipLocked, limit);
  if (step && step->emptied) {
    RemoveParkedKey(session.inbox().relation(), Argument(fcinfo, 1, "aggregate_id"));
  }
  const KeyStep done = step.value_or(KeyStep());
  Parameters row;
  row.Add(INT8OID, Int64GetDatum(done.applied)).Add(INT8OID, Int64GetDatum(done.without_effect));
  row.Add(BOOLOID, BoolGetDatum(done.more));
  if (done.error) {
    row.AddText(done.error->SqlState()).AddText(done.error->message);
  } else {
    row.AddNull(TEXTOID).AddNull(TEXTOID);
  }
  ReturnRow(fcinfo, "SELECT $1, $2, $3, $4, $5", row);
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(redrive_dead_letter) {
  using namespace postbox;
  return Guarded([&] {
    const int64 id = DatumGetInt64(Argument(fcinfo, 0, "id"));
    ApplySession session(InboxOfLetter(id), ApplySession::Callers::kAppliersAndOperators);
    return session.outcome(RedriveOne(session, id));
  });
}

POSTBOX_FUNCTION(redrive_dead_letters) {
  using namespace postbox;
  return Guarded([&] {
    Pg([&] { InitMaterializedSRF(fcinfo, 0); });
    const Oid inbox = OidArgument(fcinfo, 0, "inbox");
    const bool dry_run = DatumGetBool(Argument(fcinfo, LetterFilter::kArguments, "dry_run"));
    const int most = DatumGetInt32(Argument(fcinfo, LetterFilter::kArguments + 1, "max_events"));
    if (most < 1) Throw(ERRCODE_INVALID_PARAMETER_VALUE, "max_events must be at least 1");
    ApplySession session(inbox, ApplySession::Callers::kOwnersAndOperators);
    RequireSnapshots(session);
    ReturnTotals(fcinfo, RedriveAll(fcinfo, session, dry_run, most));
    return Datum{0};
  });
}

POSTBOX_FUNCTION(claim_parked_key) {
  using namespace postbox;
  return Guarded([&] {
    Pg([&] { InitMaterializedSRF(fcinfo, 0); });
    const Oid inbox = OidArgument(fcinfo, 0, "inbox");
    const bool count = DatumGetBool(Argument(fcinfo, 1, "count"));
    ApplySession session(inbox, ApplySession::Callers::kAppliersAndOperators);
    Claim(fcinfo, session, count);
    return Datum{0};
  });
}

POSTBOX_FUNCTION(redrive_parked_key) {
  using namespace postbox;
  return Guarded([&] {
    Pg([&] { InitMaterializedSRF(fcinfo, 0); });
    const Oid inbox = OidArgument(fcinfo, 0, "inbox");
    ApplySession session(inbox, ApplySession::Callers::kAppliersAndOperators);
    RequireParking(session.inbox());
    RedriveClaimed(fcinfo, session);
    return Datum{0};
  });
}
