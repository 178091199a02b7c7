// The leases that TableOutbox takes over, and its repairs.
#include "extension/base/act_as.h"
#include "extension/base/spi.h"
#include "extension/shared/time_scale.h"
#include "worker/publisher/base/lane_table.h"
#include "worker/publisher/base/limited_log.h"
#include "worker/publisher/base/registration.h"
#include "worker/publisher/table/table_outbox.h"
#include "worker/publisher/table/table_outbox_statements.h"

namespace postbox::publisher {

namespace {

using std::chrono::milliseconds;

// How often leases are looked through, at most.
constexpr milliseconds kLookForLeases = std::chrono::seconds(5);
// How many leases a step takes over, and how many keys one of a repair looks at, at least 2.
constexpr int kTakeOver = 1000, kRepairKeys = 1000;

}  // namespace

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
  sent_again_.BeginStep();
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
  sent_again_.BeginStep();
  transaction->Begin();
  StoreSentAgain();
}

// With the rights of the worker. If the row is locked, it is left for a later step.
void TableOutbox::StoreSentAgain() {
  const std::int64_t events = sent_again_.Take();
  if (events > 0 && !publisher::StoreSentAgain(publication_.name, events)) sent_again_.Add(events);
}

void TableOutbox::TakeOverLeases() {
  // First the tokens in the table, then those of living workers (see LiveLockTokens).
  const uint64 owners = statements_->lease_owners.Run({});
  CheckColumns(relation_, {TEXTOID});
  const std::vector<std::string> tokens = TextColumns(owners, 1);
  uint64 rows = 0;
  if (!tokens.empty()) {
    const std::vector<std::string> live = LiveLockTokens(identity().database);
    std::vector<std::string> dead;
    for (const std::string& token : tokens) {
      // A token of another form belongs to somebody else's publisher: only the time-out ends it.
      if (token.starts_with("postbox-") && token.size() == kLockTokenSize - 1 &&
          std::find(live.begin(), live.end(), token) == live.end()) {
        dead.push_back(token);
      }
    }
    const Datum most = Int32GetDatum(kTakeOver);
    if (!dead.empty()) rows += statements_->take_over_dead.Run({TextArrayValue(dead), most});
    const Datum timeout =
        Pg([] { return Float8GetDatum(static_cast<double>(LeaseTime().count()) / 1000); });
    rows += statements_->take_over_old.Run({timeout, TextValue(lock_token_), most});
    if (rows >= kTakeOver) leases_seen_at_ = Clock::time_point::min();
  }
  if (rows == 0) return;
  sent_again_.Add(static_cast<std::int64_t>(rows));
  floor_.Clear();
  LogLimited("took over " + publication_.name,
             {.message = "publication \"" + publication_.name + "\": took over " +
                         std::to_string(rows) + " events whose worker is gone"});
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
