#include "worker/publisher/source/log/parked_events.h"

#include "extension/shared/settings.h"
#include "worker/publisher/base/server_text.h"
#include "worker/publisher/delivery/event_result.h"

namespace postbox::publisher {

namespace {

// A step of Load() reads no fewer keys, also if larger steps took too long.
constexpr int kFewestLoadKeys = 100;

std::vector<std::int64_t> SeqsBefore(const PausedKeys& known,
                                     const std::vector<std::string>& keys) {
  std::vector<std::int64_t> before;
  before.reserve(keys.size());
  for (const std::string& key : keys) before.push_back(known.Before(key));
  return before;
}

// Drops all rows of keys to which another session has added rows since the keys were read. Returns
// these keys, with the lowest seq of each.
std::unordered_map<std::string, std::int64_t> DropUnknown(const PausedKeys& known,
                                                          std::vector<DueRow>* due) {
  std::unordered_map<std::string, std::int64_t> unknown;
  for (const DueRow& row : *due) {
    if (known.contains(row.key) && row.seq > known.Before(row.key)) continue;
    const auto [key, is_new] = unknown.emplace(row.key, row.seq);
    if (!is_new) key->second = std::min(key->second, row.seq);
  }
  std::erase_if(*due, [&](const DueRow& row) { return unknown.contains(row.key); });
  return unknown;
}

}  // namespace

bool ParkedEvents::Ready() {
  const bool was_read = keys_.read();
  if (was_read && !reload_.due) return true;
  const bool all = Load();
  loaded_at_ = SteadyNow();
  if (!all) return false;
  reload_.due = false;
  // Perhaps lanes were merged, or an earlier lane had begun with what goes first.
  first_ = first_ || (!was_read && !publication_.parked_blocks);
  return true;
}

void ParkedEvents::Repair() {
  if (Load()) loaded_at_ = SteadyNow();
}

std::chrono::milliseconds ParkedEvents::RepairIn() const {
  return std::chrono::seconds(settings().maintenance_interval) - Between(loaded_at_, SteadyNow());
}

void ParkedEvents::ReloadFirst() {
  reload_.due = true;
  first_ = !publication_.parked_blocks;
}

bool ParkedEvents::Load() {
  load_fails_ = true;
  if (!round_.running()) {
    keys_.BeginRound();
    const bool no_page = table_.HasNoPage();
    free_behind_rows_ = !blocks_ && !no_page;
    if (no_page) {
      load_fails_ = false;
      keys_.EndRound();
      return true;
    }
  }
  const std::vector<ParkedHead> heads = round_.Next(&table_.queue(), load_keys_);
  for (const ParkedHead& head : heads) keys_.Found(head.key, head.seq);
  table_.queue().MakeDue(heads, &to_make_due_);
  load_fails_ = false;
  if (round_.running()) return false;
  // What another session has deleted pauses nothing.
  keys_.EndRound();
  return true;
}

void ParkedEvents::RollBack() {
  keys_.RollBack();
  ForgetLoad();
}

void ParkedEvents::Reset() {
  keys_.Reset();
  ForgetLoad();
  loaded_at_ = 0;
  reload_.due = first_ = false;
}

void ParkedEvents::ForgetLoad() {
  published_.clear();
  settled_.clear();
  to_make_due_.clear();
  reload_.met.clear();
  round_.Stop();
  if (std::exchange(load_fails_, false)) load_keys_ = std::max(load_keys_ / 2, kFewestLoadKeys);
}

// The first rows of keys.

std::vector<ParkedHead> ParkedEvents::HeadsOf(const std::vector<std::string>& keys) {
  return table_.queue().HeadsOf(keys, SeqsBefore(keys_, keys));
}

// Moving aside.

void ParkedEvents::Park(const ClaimedEvent& event) {
  keys_.Add(event.key, event.seq);
  if (event.unsent() != nullptr) {
    table_.Park(event, DelayOf(event), "");
    return;
  }
  const EventRetry retry = NextRetry(publication_, event);
  const std::string error = ServerText(event.error);
  const std::string id = table_.Park(event, retry, error);
  log_.Add(KindOf(retry), FieldsOf(event, id), event.key, error);
}

void ParkedEvents::ParkBehind(const std::vector<Waiting>& events) {
  if (events.empty()) return;
  std::unordered_set<std::string> distinct;
  for (const Waiting& event : events) distinct.insert(event.key);
  const std::vector<std::string> keys_of_events(distinct.begin(), distinct.end());
  const std::unordered_map<std::string, std::int64_t> held_seqs =
      table_.queue().HoldHeadsOf(keys_of_events, SeqsBefore(keys_, keys_of_events));
  for (const bool behind : {true, false}) {
    std::vector<std::int64_t> seqs;
    std::vector<std::string> keys;
    for (const Waiting& event : events) {
      // Its transaction may have committed late, and it is before what is parked.
      const auto head = held_seqs.find(event.key);
      if ((head != held_seqs.end() && head->second < event.seq) != behind) continue;
      seqs.push_back(event.seq);
      keys.push_back(event.key);
    }
    table_.ParkBehind(seqs, keys, behind);
  }
  for (const Waiting& event : events) keys_.Add(event.key, event.seq);
}

// Trying again.

bool ParkedEvents::Claim(const Room& room, ByteBudget* budget, Events* events) {
  const bool more = ClaimDue(room, budget, events);
  if (events->empty() && !more && outstanding() == 0 && !budget->refused()) first_ = false;
  return more;
}

bool ParkedEvents::ClaimDue(const Room& room, ByteBudget* budget, Events* events) {
  if (keys_.empty() && !table_.Look()) return false;
  if (!to_make_due_.empty()) {
    const std::vector<std::string> keys(to_make_due_.begin(), to_make_due_.end());
    to_make_due_.clear();
    table_.queue().MakeDue(HeadsOf(keys), &to_make_due_);
  }
  free_behind_rows_ = free_behind_rows_ && table_.queue().FreeBehind(room.events);
  bool more = free_behind_rows_;
  std::vector<DueRow> due = table_.Due(room.events, keys_.KeysOnTheirWay());
  if (due.empty()) return more;
  if (blocks_) {
    const auto too_late = [&](const DueRow& row) { return row.seq > room.upto; };
    more = std::erase_if(due, too_late) > 0 || more;
    const std::vector<std::string> keys = DueKeys(std::move(due), &more);
    if (keys.empty()) return more;
    Take(table_.RowsOfKeys(keys, SeqsBefore(keys_, keys), room.events, budget), room.upto, events);
  } else {
    std::vector<std::string> ids;
    for (const DueRow& row : due) ids.push_back(row.id);
    Take(table_.RowsOfIds(ids, budget), room.upto, events);
  }
  return more || (budget->refused() && !events->empty());
}

std::vector<std::string> ParkedEvents::DueKeys(std::vector<DueRow> due, bool* more) {
  const std::unordered_map<std::string, std::int64_t> unknown = DropUnknown(keys_, &due);
  if (unknown.empty()) reload_.met.clear();
  for (const auto& [key, seq] : unknown) {
    *more = true;
    // A round finds no key whose first row is of another lane.
    if (!reload_.met.insert(key).second) {
      keys_.Add(key, seq);
      continue;
    }
    // A round that is running may have passed it.
    round_.Stop();
    reload_.due = true;
  }
  // In the order in which they became due, so that a key with many rows does not hold up others.
  std::vector<std::string> keys;
  std::unordered_set<std::string> distinct;
  for (const DueRow& row : due) {
    if (distinct.insert(row.key).second) keys.push_back(row.key);
  }
  const std::vector<ParkedHead> heads = HeadsOf(keys);
  std::unordered_map<std::string, std::int64_t> first;
  for (const ParkedHead& head : heads) first.emplace(head.key, head.seq);
  std::unordered_set<std::string> begin;
  std::vector<const DueRow*> later;
  for (const DueRow& row : due) {
    if (const auto head = first.find(row.key); head == first.end() || head->second == row.seq) {
      begin.insert(row.key);
    } else {
      later.push_back(&row);
    }
  }
  std::erase_if(keys, [&](const std::string& key) { return !begin.contains(key); });
  if (later.empty()) return keys;

  std::vector<ParkedHead> in_front;
  for (const ParkedHead& head : heads) {
    if (!begin.contains(head.key)) in_front.push_back(head);
  }
  const std::unordered_set<std::string> held = table_.queue().Hold(in_front);
  std::vector<std::string> ids;
  for (const DueRow* row : later) {
    if (held.contains(row->key)) ids.push_back(row->id);
  }
  if (!ids.empty()) {
    table_.PutBehind(ids);
    *more = true;
  }
  table_.queue().MakeDue(in_front, &to_make_due_);
  return keys;
}

void ParkedEvents::Take(Events rows, std::int64_t upto, Events* events) {
  std::unordered_set<std::string> begun;
  std::unordered_set<std::string> ended;
  for (EventPointer& event : rows) {
    if (blocks_) {
      // A key's first row, and those that wait behind it and nothing else.
      if (ended.contains(event->key)) continue;
      const bool later = !begun.insert(event->key).second;
      if (event->seq > upto || (later && event->attempts > 0)) {
        ended.insert(event->key);
        continue;
      }
    }
    keys_.HandOut(event->key, event->seq);
    events->push_back(std::move(event));
  }
}

void ParkedEvents::Settle(const ClaimedEvent& event) {
  const EventResult result = ResultOf(event);
  const bool published = result == EventResult::kPublished || result == EventResult::kExpired;
  keys_.Settle(event.key, event.seq, published && blocks_);
  settled_.insert(event.key);
  if (published) published_.push_back(event.id);
  if (result == EventResult::kDelayed) table_.ParkAgain(event, DelayOf(event), "");
  if (result != EventResult::kFailed) return;
  const EventRetry retry = NextRetry(publication_, event);
  const std::string error = ServerText(event.error);
  table_.ParkAgain(event, retry, error);
  log_.Add(KindOf(retry), FieldsOf(event, event.id), event.key, error);
}

void ParkedEvents::DeletePublished() {
  table_.Delete(published_);
  published_.clear();
  if (settled_.empty()) return;
  const std::vector<ParkedHead> heads = HeadsOf({settled_.begin(), settled_.end()});
  for (const ParkedHead& head : heads) settled_.erase(head.key);
  for (const std::string& key : settled_) keys_.Gone(key);
  settled_.clear();
  if (blocks_) table_.queue().MakeDue(heads, &to_make_due_);
}

}  // namespace postbox::publisher
