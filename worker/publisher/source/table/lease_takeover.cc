#include "worker/publisher/source/table/lease_takeover.h"

#include "extension/shared/time_scale.h"
#include "worker/publisher/base/limited_log.h"
#include "worker/publisher/base/registration.h"

namespace postbox::publisher {

namespace {

// How often leases are looked through, at most.
constexpr std::chrono::milliseconds kLookForLeases = std::chrono::seconds(5);
// How many rows are looked at there at a time, and how many leases a step takes over.
constexpr int kLookedAt = 5000, kTakeOver = 1000;

bool Contains(const std::vector<std::string>& tokens, const std::string& token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

}  // namespace

const char* LeaseTakeover::Reason(Ending ending) {
  switch (ending) {
    case Ending::kGone:
      return "whose worker has ended";
    case Ending::kOld:
      return "whose lease is older than postbox.lease_timeout, or has no valid time";
    default:
      return "with a lease of this worker that it no longer tracks";
  }
}

LeaseTakeover::Clock::time_point LeaseTakeover::Next() const {
  return looked_at_ + std::min(Scaled(kLookForLeases), LeaseTime() / 4);
}

std::optional<LeaseTakeover::Ending> LeaseTakeover::EndingOf(
    const LeasedRow& lease, const std::vector<std::string>& live) const {
  if (!lease.token) return Ending::kNone;
  const std::string& token = *lease.token;
  if (token == lock_token_) {
    // However old, what this worker has in hand may have a result that waits for the table.
    const bool may_end = (lease.old || lease.timeless) && !in_hand_.seqs().Contains(lease.seq);
    return may_end ? std::optional(Ending::kForgotten) : std::nullopt;
  }
  const bool lives = Contains(live, token);
  // A token of another form belongs to another publisher: only the time-out ends it.
  if (!lives && token.starts_with("postbox-") && token.size() == kLockTokenSize - 1) {
    return Ending::kGone;
  }
  if (lease.old || (lease.timeless && !lives)) return Ending::kOld;
  return std::nullopt;
}

// First the rows, then the tokens of living workers (see LiveLockTokens). Those that lived before
// only keep out of the look what would not end.
std::map<LeaseTakeover::Ending, LeaseTakeover::Leases> LeaseTakeover::EndingLeases(
    double timeout, const std::vector<ItemPointerData>& seen) {
  // Also what walks leave out because another worker had it.
  const auto ranges = ClaimFloor().Between(0, PG_INT64_MAX, in_hand_.seqs());
  const std::vector<LeasedRow> rows =
      table_.Leases(ranges, timeout, kLookedAt, seen, LiveLockTokens(identity().database));
  std::map<Ending, Leases> leases;
  if (rows.empty()) return leases;
  const std::vector<std::string> live = LiveLockTokens(identity().database);
  for (const LeasedRow& row : rows) {
    const std::optional<Ending> ending = EndingOf(row, live);
    if (!ending) continue;
    leases[*ending].rows.push_back(row.tid);
    leases[*ending].tokens.insert(row.token.value_or(""));
  }
  return leases;
}

LeaseTakeover::TakenOver LeaseTakeover::Run(const std::vector<ItemPointerData>& seen) {
  const double timeout = static_cast<double>(LeaseTime().count()) / 1000;
  TakenOver taken;
  for (auto& [ending, leases] : EndingLeases(timeout, seen)) {
    if (leases.rows.size() > kTakeOver) {
      leases.rows.resize(kTakeOver);
      looked_at_ = Clock::time_point::min();
    }
    const uint64 rows = table_.TakeOver(leases.rows, {leases.tokens.begin(), leases.tokens.end()},
                                        timeout, ending == Ending::kGone);
    if (rows == 0) continue;
    taken.any = true;
    if (ending == Ending::kNone) continue;
    taken.events += static_cast<std::int64_t>(rows);
    LogLimited("took over " + std::to_string(static_cast<int>(ending)) + publication_.name,
               {.message = "publication \"" + publication_.name + "\": took over " +
                           std::to_string(rows) + " events " + Reason(ending)});
  }
  return taken;
}

}  // namespace postbox::publisher
