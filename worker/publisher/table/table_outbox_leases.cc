// The leases that TableOutbox takes over, and its repairs.
#include "extension/base/spi.h"
#include "extension/shared/time_scale.h"
#include "extension/trust/act_as.h"
#include "worker/publisher/base/limited_log.h"
#include "worker/publisher/base/publication_state.h"
#include "worker/publisher/base/registration.h"
#include "worker/publisher/table/table_outbox.h"
#include "worker/publisher/table/table_outbox_statements.h"

namespace postbox::publisher {

namespace {

using std::chrono::milliseconds;

// How often leases are looked through, at most.
constexpr milliseconds kLookForLeases = std::chrono::seconds(5);
// How many rows are looked at there at a time, how many leases a step takes over, and how many keys
// one of a repair looks at, at least 2.
constexpr int kLookedAt = 5000, kTakeOver = 1000, kRepairKeys = 1000;

}  // namespace

const char* TableOutbox::Reason(Ending ending) {
  switch (ending) {
    case Ending::kGone:
      return "whose worker is gone";
    case Ending::kOld:
      return "whose lease is older than postbox.lease_timeout, or has no valid time";
    default:
      return "under this worker's lease that it has not in hand";
  }
}

milliseconds TableOutbox::MaintainIn() const {
  if (!log_.empty()) return milliseconds(0);
  const Clock::time_point now = Clock::now();
  const Clock::time_point next = std::min(NextLookForLeases(), NextRepair());
  if (next <= now) return milliseconds(0);
  return std::chrono::duration_cast<milliseconds>(next - now) + milliseconds(1);
}

TableOutbox::Clock::time_point TableOutbox::NextLookForLeases() const {
  return leases_seen_at_ + std::min(Scaled(kLookForLeases), LeaseTime() / 4);
}

TableOutbox::Clock::time_point TableOutbox::NextRepair() const {
  // One worker is enough.
  if (identity().ordinal != 0) return Clock::time_point::max();
  if (in_repair_round_) return Clock::time_point::min();
  return repaired_at_ + std::chrono::seconds(settings().maintenance_interval);
}

void TableOutbox::Maintain(bool leaving, Transaction* transaction) {
  if (leaving) return;
  BeginStep();
  log_.Write();
  const Clock::time_point now = Clock::now();
  // One kind of work in a transaction: a failure of the one does not take the other back.
  const bool leases = NextLookForLeases() <= now;
  if (!leases && NextRepair() > now) return;
  if (leases || !in_repair_round_) (leases ? leases_seen_at_ : repaired_at_) = now;

  transaction->Begin();
  const Oid owner = Open();
  if (!OidIsValid(owner)) return;
  {
    const ActAs rights(owner);
    leases ? TakeOverLeases() : Repair();
  }
  StoreSentAgain();
}

void TableOutbox::GiveUp(Transaction* transaction) {
  if (!sent_again_.any()) return;
  BeginStep();
  transaction->Begin();
  StoreSentAgain();
}

// With the rights of the worker. If the row is locked, it is left for a later step.
void TableOutbox::StoreSentAgain() {
  const std::int64_t events = sent_again_.Take();
  if (events > 0 && !publisher::StoreSentAgain(publication_.name, events)) sent_again_.Add(events);
}

// First the rows, then the tokens of living workers (see LiveLockTokens). Those that lived before
// only keep out of the look what would not end.
std::map<TableOutbox::Ending, TableOutbox::Leases> TableOutbox::EndingLeases(Datum timeout) {
  // Also what walks leave out because another worker had it.
  const auto ranges = ClaimFloor().Between(0, PG_INT64_MAX, in_hand_.seqs());
  const uint64 rows =
      statements_->leases.Run({Int64ArrayValue(ranges.after), Int64ArrayValue(ranges.upto), timeout,
                               Int32GetDatum(kLookedAt), TidArrayValue(std::exchange(leases_, {})),
                               TextArrayValue(LiveLockTokens(identity().database))});
  CheckColumns(relation_, {TIDOID, INT8OID, TEXTOID, BOOLOID, BOOLOID});
  std::map<Ending, Leases> leases;
  if (rows == 0) return leases;
  const std::vector<std::string> live = LiveLockTokens(identity().database);
  for (uint64 row = 0; row < rows; ++row) {
    const std::string token = TextColumn(row, 3);
    const bool old = BoolColumn(row, 4), timeless = BoolColumn(row, 5);
    const bool lives = std::find(live.begin(), live.end(), token) != live.end();
    std::optional<Ending> ending;
    if (IsNull(row, 3)) {
      ending = Ending::kNone;
    } else if (token == lock_token_) {
      // However old, what this worker has in hand may have a result that waits for the table.
      if ((old || timeless) && !in_hand_.seqs().Contains(Int64Column(row, 2))) {
        ending = Ending::kForgotten;
      }
    } else if (!lives && token.starts_with("postbox-") && token.size() == kLockTokenSize - 1) {
      // A token of another form belongs to another publisher: only the time-out ends it.
      ending = Ending::kGone;
    } else if (old || (timeless && !lives)) {
      ending = Ending::kOld;
    }
    if (!ending) continue;
    leases[*ending].rows.push_back(TidColumn(row, 1));
    leases[*ending].tokens.insert(token);
  }
  return leases;
}

void TableOutbox::TakeOverLeases() {
  const Datum timeout =
      Pg([] { return Float8GetDatum(static_cast<double>(LeaseTime().count()) / 1000); });
  for (auto& [ending, leases] : EndingLeases(timeout)) {
    if (leases.rows.size() > kTakeOver) {
      leases.rows.resize(kTakeOver);
      leases_seen_at_ = Clock::time_point::min();
    }
    const bool at_any_age = ending == Ending::kGone;
    const uint64 rows = statements_->take_over.Run(
        {TidArrayValue(leases.rows), TextArrayValue({leases.tokens.begin(), leases.tokens.end()}),
         timeout, BoolGetDatum(at_any_age)});
    if (rows == 0) continue;
    floor_.Clear();
    if (ending == Ending::kNone) continue;
    sent_again_.Add(static_cast<std::int64_t>(rows));
    LogLimited("took over " + std::to_string(static_cast<int>(ending)) + publication_.name,
               {.message = "publication \"" + publication_.name + "\": took over " +
                           std::to_string(rows) + " events " + Reason(ending)});
  }
}

void TableOutbox::Repair() {
  free_behind_ = !blocks_;
  if (!blocks_) return;
  // Where nothing is behind, the keys are not read, of which there may be many.
  if (!in_repair_round_ && statements_->any_behind.Run({}) == 0) return;
  if (!in_repair_round_) repaired_upto_.clear();
  in_repair_round_ = false;  // should it fail, it begins at the start next time
  const uint64 rows =
      statements_->keys.Run({TextValue(repaired_upto_), Int32GetDatum(kRepairKeys)});
  CheckColumns(relation_, {TEXTOID, TIDOID, BOOLOID});
  std::vector<ItemPointerData> behind;
  for (uint64 row = 0; row < rows; ++row) {
    if (BoolColumn(row, 3)) behind.push_back(TidColumn(row, 2));
  }
  if (rows > 0) repaired_upto_ = TextColumn(rows - 1, 1);
  in_repair_round_ = rows == kRepairKeys;
  if (behind.empty()) return;
  const uint64 repaired = statements_->make_due.Run({TidArrayValue(behind)});
  LogLimited("waited " + publication_.name,
             {.message = "publication \"" + publication_.name + "\": " + std::to_string(repaired) +
                         " keys waited behind nothing"});
}

}  // namespace postbox::publisher
