// postbox.discard_dead_letter and discard_dead_letters.
//
// No role may DELETE from the table: with that it could LOCK it, and hold up all who record events.
//
// A parked event leaves its key, and what follows is applied without it. So the caller says why,
// which is recorded in postbox.discarded_event, and accepts a hole if there is one (hole.h).
#include "extension/apply/hole.h"
#include "extension/apply/letter_filter.h"
#include "extension/apply/parked_keys.h"
#include "extension/apply/scratch_memory.h"
#include "extension/base/arguments.h"
#include "extension/base/relation.h"
#include "extension/trust/registrar.h"

namespace postbox {
namespace {

// What the caller says of parked events.
struct Consent {
  std::optional<std::string> reason;
  bool hole;
  std::string caller;  // the name of the role
};

Consent ConsentArguments(FunctionCallInfo fcinfo, int first) {
  Consent consent{
      .reason = OptionalText(fcinfo, first),
      .hole = DatumGetBool(Argument(fcinfo, first + 1, "accept_hole")),
      .caller = Pg([]() -> const char* { return GetUserNameFromId(GetUserId(), false); })};
  if (consent.reason && consent.reason->empty()) consent.reason.reset();
  return consent;
}

struct FoundLetter {
  int64 id;
  Oid inbox;
  bool parked;
};

// The policy of the table says who may see them, and so who may remove them.
std::vector<FoundLetter> FindLetters(const std::string& where, Parameters& parameters) {
  const uint64 rows =
      Run("SELECT d.id, d.inbox::oid, d.parked FROM postbox.dead_letter d WHERE true" + where +
              " ORDER BY d.inbox, d.id",
          parameters);
  std::vector<FoundLetter> found;
  for (uint64 row = 0; row < rows; ++row) {
    found.push_back({Int64Column(row, 1), OidColumn(row, 2), BoolColumn(row, 3)});
  }
  return found;
}

void RequireReason(int64 id, const Consent& consent) {
  if (consent.reason) return;
  Throw(ERRCODE_NULL_VALUE_NOT_ALLOWED,
        "dead letter " + std::to_string(id) + " is parked, and is discarded with a reason only",
        "Later events of its key wait behind it, and are applied without it.",
        "Pass reason => '...', which postbox.discarded_event keeps.");
}

void RecordDiscarded(const Inbox& inbox, const InboxEvent& event, bool hole,
                     const Consent& consent) {
  Parameters row;
  row.AddOid(REGCLASSOID, inbox.relation());
  for (const EventField field : {EventField::kEventId, EventField::kEventType,
                                 EventField::kAggregateType, EventField::kAggregateId}) {
    if (event.IsNull(field)) {
      row.AddNull(TEXTOID);
    } else {
      row.Add(TEXTOID, event.Value(field));
    }
  }
  if (event.IsNull(EventField::kVersion)) {
    row.AddNull(INT8OID);
  } else {
    row.Add(INT8OID, event.Value(EventField::kVersion));
  }
  row.Add(BOOLOID, BoolGetDatum(hole)).AddText(*consent.reason).AddText(consent.caller);
  const Registrar registrar("discarded_event");
  Run("INSERT INTO postbox.discarded_event (inbox, event_id, event_type, aggregate_type, "
      "aggregate_id, version, hole, reason, discarded_by) "
      "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
      row);
}

// Returns the number of removed letters. The name of a key that has none left goes to `emptied`.
int64 DiscardParked(ApplySession& session, int64 id, const Consent& consent,
                    std::vector<std::string>* emptied) {
  const Oid inbox = session.inbox().relation();
  std::optional<DeadLetter> letter = ReadLetter(id);
  if (!letter) return 0;
  const Datum key = letter->event.Value(EventField::kAggregateId);
  const std::optional<ParkedKey> locked =
      letter->parked ? LockParkedKey(inbox, key, Wait::kWait) : std::nullopt;
  // It may have been applied meanwhile, or have left its key.
  letter = ReadLetter(id);
  if (!letter) return 0;
  if (locked && letter->parked) {
    const std::string hole = HoleAfter(session, *letter);
    if (!hole.empty() && !consent.hole) {
      Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "discarding dead letter " + std::to_string(id) + " leaves a hole", hole,
            "Pass accept_hole => true if the key is to go on without the event.");
    }
    const std::optional<DeadLetter> first = ReadNextParked(inbox, key, 0);
    RecordDiscarded(session.inbox(), letter->event, !hole.empty(), consent);
    // The next event is due.
    if (first && first->id == id) SetRetry(inbox, *locked, 0, std::chrono::milliseconds(0));
  }
  session.inbox().rows().SetRejected(letter->event);
  RemoveLetter(id);
  if (locked && !ReadNextParked(inbox, key, 0)) {
    emptied->emplace_back(Pg([&]() -> const char* { return TextDatumGetCString(key); }));
  }
  return 1;
}

int64 Discard(const std::vector<FoundLetter>& letters, const Consent& consent) {
  int64 discarded = 0;
  std::vector<int64> plain;
  for (const FoundLetter& letter : letters) {
    if (!letter.parked) plain.push_back(letter.id);
  }
  if (!plain.empty()) {
    const Registrar registrar("dead_letter");
    Parameters ids;
    ids.Add(INT8ARRAYOID, Int64ArrayValue(plain));
    // A letter never becomes part of a key.
    discarded +=
        static_cast<int64>(Run("DELETE FROM postbox.dead_letter WHERE id = ANY ($1)", ids));
  }
  for (size_t at = 0; at < letters.size();) {
    const Oid inbox = letters[at].inbox;
    std::optional<ApplySession> session;
    std::vector<std::string> emptied;
    MemoryContext scratch = MakeScratch();
    for (; at < letters.size() && letters[at].inbox == inbox; ++at) {
      if (!letters[at].parked) continue;
      RequireReason(letters[at].id, consent);
      if (!session) {
        session.emplace(inbox, ApplySession::Callers::kOwnersAndOperators);
        RequireParking(session->inbox());
      }
      Pg([] { CHECK_FOR_INTERRUPTS(); });
      const ScratchMemory memory(scratch);
      discarded += DiscardParked(*session, letters[at].id, consent, &emptied);
    }
    for (const std::string& key : emptied) RemoveParkedKey(inbox, TextValue(key));
  }
  return discarded;
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(discard_dead_letter) {
  using namespace postbox;
  return Guarded([&] {
    const Consent consent = ConsentArguments(fcinfo, 1);
    SpiConnection connection;
    FixedSearchPath search_path;
    Parameters key;
    key.Add(INT8OID, Argument(fcinfo, 0, "id"));
    return BoolGetDatum(Discard(FindLetters(" AND d.id = $1", key), consent) > 0);
  });
}

POSTBOX_FUNCTION(discard_dead_letters) {
  using namespace postbox;
  return Guarded([&] {
    const Consent consent = ConsentArguments(fcinfo, LetterFilter::kArguments);
    SpiConnection connection;
    FixedSearchPath search_path;
    LetterFilter filter(fcinfo);
    if (filter.empty()) {
      Throw(ERRCODE_INVALID_PARAMETER_VALUE, "all arguments of discard_dead_letters are NULL", "",
            "Select dead letters by inbox, aggregate, event type or another argument.");
    }
    return Int64GetDatum(Discard(FindLetters(filter.where(), filter.parameters()), consent));
  });
}
