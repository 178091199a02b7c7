// See table_outbox.h.
#include "worker/publisher/source/table/table_outbox.h"

#include "extension/base/spi.h"
#include "extension/base/subtransaction.h"
#include "extension/trust/act_as.h"
#include "worker/publisher/base/limited_log.h"
#include "worker/publisher/base/registration.h"
#include "worker/publisher/base/server_text.h"
#include "worker/publisher/delivery/event_result.h"
#include "worker/publisher/store/publication_state.h"

namespace postbox::publisher {

namespace {

using std::chrono::milliseconds;

// So many bytes are leased and read at a time, or one row.
constexpr std::size_t kPortion = std::size_t{4} << 20;
// How many keys a step of a repair looks at, at least 2.
constexpr int kRepairKeys = 1000;

}  // namespace

TableOutbox::TableOutbox(Publication publication, std::string topic, std::string lock_token)
    : publication_(std::move(publication)),
      topic_(std::move(topic)),
      lock_token_(std::move(lock_token)),
      ordering_(publication_.ordering),
      blocks_(publication_.parked_blocks && ordering_.ordered()),
      table_(publication_, topic_, ordering_, lock_token_),
      in_hand_(publication_.outbox),
      walk_(blocks_, table_, in_hand_),
      takeover_(publication_, lock_token_, table_, in_hand_),
      sent_again_(publication_.name, 0),
      log_(publication_.name) {}

void TableOutbox::BeginStep() {
  sent_again_.BeginStep();
  expired_.BeginStep();
  in_hand_.BeginStep();
}

void TableOutbox::RollBack(const std::string& /*error*/) {
  sent_again_.RollBack();
  in_hand_.RollBack();
  table_.Forget();
  walk_.Reset();
}

// Claim.

ClaimWay TableOutbox::way() const {
  return {.lock = RowExclusiveLock,
          .most_events = settings().claim_batch_size,
          .may_be_small = false,
          .keeps_room = false};
}

ClaimResult TableOutbox::Claim(const ClaimLimits& limits, Transaction* transaction) {
  BeginStep();
  transaction->Begin();
  const Oid owner = table_.Open();
  if (!OidIsValid(owner)) return {};
  const ActAs rights(owner);
  ClaimResult result;
  // An adopted table has columns that are converted: an error may be that of one row.
  try {
    InSubtransaction([&] { result = ClaimAtOnce(limits, false); });
  } catch (const PostgresError& error) {
    if (!IsOfValue(error)) throw;
    walk_.BeginAtFloor();
    result = ClaimAtOnce(limits, true);
  }
  return result;
}

ClaimResult TableOutbox::ClaimAtOnce(const ClaimLimits& limits, bool one_by_one) {
  ClaimResult result;
  std::vector<ChosenRow> chosen = walk_.Choose(limits, &result);
  result.events = Lease(std::move(chosen), limits.bytes, one_by_one);
  return result;
}

Events TableOutbox::Lease(std::vector<ChosenRow> chosen, std::size_t max_bytes, bool one_by_one) {
  std::sort(chosen.begin(), chosen.end(),
            [](const ChosenRow& one, const ChosenRow& other) { return one.seq < other.seq; });
  Events events;
  // Keys with a row that cannot be read: it is parked, and those behind it are left where they are.
  std::unordered_set<std::string> stopped;
  std::size_t bytes = 0;
  for (std::size_t at = 0; at < chosen.size() && (bytes == 0 || bytes < max_bytes);) {
    const std::vector<ChosenRow> portion = NextPortion(chosen, one_by_one, &stopped, &at);
    if (portion.empty()) break;
    std::vector<ItemPointerData> tids;
    for (const ChosenRow& row : portion) tids.push_back(row.tid);
    if (!one_by_one) {
      bytes += table_.Lease(tids, &events);
      continue;
    }
    try {
      InSubtransaction([&] { bytes += table_.Lease(tids, &events); });
    } catch (const PostgresError& error) {
      if (!IsOfValue(error)) throw;
      stopped.insert(portion.front().key);
      ParkUnreadable(portion.front(), error.message);
    }
  }
  std::sort(events.begin(), events.end(), [](const EventPointer& one, const EventPointer& other) {
    return one->seq < other->seq;
  });
  std::vector<int64> seqs;
  for (const EventPointer& event : events) seqs.push_back(event->seq);
  in_hand_.Claimed(seqs);
  walk_.Leased(seqs);
  return events;
}

std::vector<ChosenRow> TableOutbox::NextPortion(const std::vector<ChosenRow>& chosen,
                                                bool one_by_one,
                                                std::unordered_set<std::string>* stopped,
                                                std::size_t* at) {
  std::vector<ChosenRow> portion;
  for (std::size_t bytes = 0; *at < chosen.size(); ++*at) {
    const ChosenRow& row = chosen[*at];
    if (ordering_.ordered() && !stopped->empty() && stopped->contains(row.key)) continue;
    if (row.too_large > 0) {
      stopped->insert(row.key);
      ParkUnreadable(row, "its payload has " + std::to_string(row.too_large) +
                              " bytes, and a message may have at most " +
                              std::to_string(kMaxPayload));
      continue;
    }
    if (!portion.empty() && (one_by_one || bytes + row.bytes > kPortion)) break;
    portion.push_back(row);
    bytes += row.bytes;
  }
  return portion;
}

void TableOutbox::ParkUnreadable(const ChosenRow& row, const std::string& reason) {
  const std::string problem = "the row cannot be an event: " + Shortened(reason, kMaxReason);
  table_.ParkUnreadable(row.tid, problem);
  log_.Add(EventLog::kParked, {}, row.key, problem);
}

// Settle.

bool TableOutbox::Settle(std::span<const EventPointer> events, Transaction* transaction) {
  walk_.Settled();
  BeginStep();
  sent_again_.AddResults(events);
  std::vector<int64> seqs;
  for (const EventPointer& event : events) seqs.push_back(event->seq);
  std::sort(seqs.begin(), seqs.end());
  in_hand_.Settled(seqs);
  transaction->Begin();
  const Oid owner = table_.Open();
  if (!OidIsValid(owner)) return false;
  StoreSentAgain();
  {
    const ActAs rights(owner);
    SettleRows(events);
    expired_.LookUp(publication_.outbox);
  }
  expired_.Store(publication_);
  log_.Write();
  return true;
}

void TableOutbox::SettleRows(std::span<const EventPointer> events) {
  std::vector<const ClaimedEvent*> published, expired, released;
  std::unordered_set<std::string> parked_keys;
  for (const EventPointer& event : events) {
    switch (ResultOf(*event)) {
      case EventResult::kPublished:
        published.push_back(event.get());
        break;
      case EventResult::kFailed:
        if (Park(*event)) parked_keys.insert(event->key);
        break;
      case EventResult::kDelayed:
        if (Delay(*event)) parked_keys.insert(event->key);
        break;
      case EventResult::kExpired:
        expired.push_back(event.get());
        break;
      default:
        released.push_back(event.get());
    }
  }
  Confirm(std::move(published));
  Expire(expired);
  Release(std::move(released), std::move(parked_keys));
}

// Behind a row that is parked in this very transaction, nothing can have got it through yet: so is
// one that waits to be tried again. Behind anything else: the next claim looks again.
void TableOutbox::Release(std::vector<const ClaimedEvent*> events,
                          std::unordered_set<std::string> parked_keys) {
  std::sort(events.begin(), events.end(),
            [](const auto* one, const auto* other) { return one->seq < other->seq; });
  std::vector<std::string> released, behind;
  for (const ClaimedEvent* event : events) {
    const bool was_behind = event->parked && event->attempts == 0;
    const bool park = blocks_ && parked_keys.contains(event->key) &&
                      (event->status == pubsub::PublishStatus::kBehind || was_behind);
    (park ? behind : released).push_back(event->id);
    if (!park && event->parked) parked_keys.insert(event->key);
  }
  if (!released.empty()) {
    walk_.Released();
    CheckStored(table_.Release(released), released.size());
  }
  if (!behind.empty()) CheckStored(table_.ReleaseBehind(behind), behind.size());
}

void TableOutbox::Confirm(std::vector<const ClaimedEvent*> published) {
  if (published.empty()) return;
  // Neighbours in the table and in its index of ids, in whatever order they have gone through.
  std::sort(published.begin(), published.end(), [](const auto* one, const auto* other) {
    return std::pair(one->block, one->offset) < std::pair(other->block, other->offset);
  });
  std::vector<std::string> ids;
  std::vector<ItemPointerData> places(published.size());
  for (const ClaimedEvent* event : published) {
    ItemPointerSet(&places[ids.size()], event->block, event->offset);
    ids.push_back(event->id);
  }
  CheckStored(table_.Confirm(ids, places), ids.size());
  LetGoOn(published);
}

void TableOutbox::Expire(const std::vector<const ClaimedEvent*>& expired) {
  if (expired.empty()) return;
  std::vector<std::string> ids;
  for (const ClaimedEvent* event : expired) ids.push_back(event->id);
  std::unordered_set<std::string> recorded;
  CheckStored(table_.Expire(ids, &recorded), ids.size());
  for (const ClaimedEvent* event : expired) {
    if (recorded.contains(event->id)) expired_.Add(*event);
  }
  LetGoOn(expired);
}

void TableOutbox::LetGoOn(const std::vector<const ClaimedEvent*>& settled) {
  std::unordered_set<std::string> was_parked;
  for (const ClaimedEvent* event : settled) {
    if (event->parked || event->attempts > 0) was_parked.insert(event->key);
  }
  if (!blocks_ || was_parked.empty()) return;
  ParkedQueue& queue = table_.queue();
  queue.MakeDue(queue.HeadsOf({was_parked.begin(), was_parked.end()}));
}

bool TableOutbox::Delay(const ClaimedEvent& event) {
  const bool stored = table_.Park(event, DelayOf(event), "");
  CheckStored(stored ? 1 : 0, 1);
  return stored;
}

bool TableOutbox::Park(const ClaimedEvent& event) {
  const EventRetry retry = NextRetry(publication_, event);
  const std::string error = ServerText(event.error);
  if (!table_.Park(event, retry, error)) return false;
  log_.Add(KindOf(retry), FieldsOf(event, event.id), event.key, error);
  return true;
}

void TableOutbox::CheckStored(uint64 rows, std::size_t events) const {
  if (rows == events) return;
  // Published twice at worst: the worker that has taken them over sends them again.
  LogLimited("lease lost " + publication_.name,
             {.message = "publication \"" + publication_.name + "\": the lease of " +
                         std::to_string(events - rows) +
                         " events was lost before their result could be stored",
              .hint = "postbox.lease_timeout may be too short."});
}

// Maintain.

milliseconds TableOutbox::MaintainIn() const {
  if (!log_.empty()) return milliseconds(0);
  const Clock::time_point now = Clock::now();
  const Clock::time_point next = std::min(takeover_.Next(), NextRepair());
  if (next <= now) return milliseconds(0);
  return std::chrono::duration_cast<milliseconds>(next - now) + milliseconds(1);
}

TableOutbox::Clock::time_point TableOutbox::NextRepair() const {
  // One worker is enough.
  if (identity().ordinal != 0) return Clock::time_point::max();
  if (repair_.running()) return Clock::time_point::min();
  return repaired_at_ + std::chrono::seconds(settings().maintenance_interval);
}

void TableOutbox::Maintain(bool leaving, Transaction* transaction) {
  if (leaving) return;
  BeginStep();
  log_.Write();
  const Clock::time_point now = Clock::now();
  // One kind of work in a transaction: a failure of the one does not take the other back.
  const bool leases = takeover_.Next() <= now;
  if (!leases && NextRepair() > now) return;
  if (leases) {
    takeover_.Begin(now);
  } else if (!repair_.running()) {
    repaired_at_ = now;
  }

  transaction->Begin();
  const Oid owner = table_.Open();
  if (!OidIsValid(owner)) return;
  {
    const ActAs rights(owner);
    if (leases) {
      const LeaseTakeover::TakenOver taken = takeover_.Run(walk_.TakeLeasesSeen());
      if (taken.any) walk_.Released();
      sent_again_.Add(taken.events);
    } else {
      Repair();
    }
  }
  StoreSentAgain();
}

void TableOutbox::Repair() {
  walk_.LookBehind();
  if (!blocks_) return;
  // Where nothing is behind, the keys are not read, of which there may be many.
  if (!repair_.running() && !table_.AnyBehind()) return;
  const uint64 repaired = table_.queue().MakeDue(repair_.Next(&table_.queue(), kRepairKeys));
  if (repaired == 0) return;
  LogLimited("waited " + publication_.name,
             {.message = "publication \"" + publication_.name + "\": " + std::to_string(repaired) +
                         " keys waited without a preceding event"});
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

}  // namespace postbox::publisher
