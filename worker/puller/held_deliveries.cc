#include "worker/puller/held_deliveries.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

namespace postbox::puller {
namespace {

// The most bytes that one transaction applies; its first event may be larger.
constexpr size_t kMaxBatchBytes = 16 << 20;

std::chrono::system_clock::time_point Oldest(const std::vector<Delivery>& batch) {
  auto oldest = std::chrono::system_clock::time_point::max();
  for (const Delivery& each : batch) oldest = std::min(oldest, each.message.publish_time);
  return oldest;
}

}  // namespace

HeldDeliveries::HeldDeliveries(const SubscriptionConfig& config, ConsumerHealth* health)
    : health_(health),
      batch_size_(static_cast<size_t>(config.batch_size)),
      most_suspects_(std::max(1, config.appliers - 1)),
      most_held_messages_(static_cast<size_t>(config.max_outstanding_messages / 2)),
      most_held_bytes_(static_cast<size_t>(config.max_outstanding_bytes / 2)),
      batch_timer_(config.batch_delay),
      letter_backoff_({config.min_backoff, 2.0, config.max_backoff}) {}

bool HeldDeliveries::Push(std::vector<Delivery>* deliveries, TimePoint now) {
  const size_t before = queues_.ready();
  bool suspect = false;
  in_hand_ += deliveries->size();
  for (Delivery& delivery : *deliveries) {
    suspect = suspect || delivery.suspect;
    queues_.Push(std::move(delivery), now);
  }
  const bool given_back = !held_.empty() && LimitHeld(now);
  return given_back || suspect || before == 0 ||
         (before < batch_size_ && queues_.ready() >= batch_size_);
}

HeldDeliveries::TimePoint HeldDeliveries::NextBatch() const {
  auto next = TimePoint::max();
  if (auto since = queues_.ready_since()) {
    next = batch_timer_.Due(*since, /*full=*/queues_.ready() >= batch_size_);
  }
  if (auto since = NextSuspect()) next = std::min(next, *since);
  return next;
}

std::optional<HeldDeliveries::TimePoint> HeldDeliveries::NextSuspect() const {
  if (suspects_ >= most_suspects_) return std::nullopt;
  return queues_.suspect_since();
}

std::vector<Delivery> HeldDeliveries::Take(size_t limit, TimePoint now) {
  const auto suspect = NextSuspect();
  const auto ready = queues_.ready_since();
  std::vector<Delivery> batch;
  if (suspect && (!ready || *suspect < *ready)) {
    ++suspects_;
    batch = queues_.TakeSuspect();
  } else {
    batch_timer_.Begun(now);
    batch = queues_.Take(limit, kMaxBatchBytes);
  }
  taken_.insert(Oldest(batch));
  return batch;
}

std::optional<std::chrono::system_clock::time_point> HeldDeliveries::oldest() const {
  auto oldest = taken_.empty() ? std::chrono::system_clock::time_point::max() : *taken_.begin();
  for (const auto& [type, waiting] : Waiting()) oldest = std::min(oldest, waiting.oldest);
  if (oldest == std::chrono::system_clock::time_point::max()) return std::nullopt;
  return oldest;
}

std::vector<HeldDeliveries::Letter> HeldDeliveries::Return(
    const std::vector<Disposition>& dispositions, std::vector<Delivery>* batch, TimePoint now) {
  if (!batch->empty() && batch->front().suspect) --suspects_;
  taken_.extract(Oldest(*batch));
  in_hand_ -= static_cast<size_t>(
      std::count_if(dispositions.begin(), dispositions.end(),
                    [](const Disposition& each) { return each.kind == Disposition::kSettled; }));
  std::vector<Letter> letters;
  const bool all_settled =
      std::all_of(dispositions.begin(), dispositions.end(),
                  [](const Disposition& each) { return each.kind == Disposition::kSettled; });
  if (all_settled) {
    // Those of a key follow each other.
    std::string_view last;
    for (const Delivery& delivery : *batch) {
      const std::string_view key = delivery.message.ordering_key;
      if (key.empty() || key != last) queues_.Done(delivery.queue_key(), now);
      last = key;
    }
    return letters;
  }
  std::map<std::string, std::vector<size_t>> positions_of;  // by queue key
  for (size_t i = 0; i < batch->size(); ++i) positions_of[(*batch)[i].queue_key()].push_back(i);
  for (const auto& [queue_key, positions] : positions_of) {
    std::vector<Delivery> unsettled;
    const Disposition* first = nullptr;
    for (size_t i : positions) {
      if (dispositions[i].kind == Disposition::kSettled) continue;
      if (unsettled.empty()) first = &dispositions[i];
      unsettled.push_back(std::move((*batch)[i]));
    }
    if (unsettled.empty()) {
      queues_.Done(queue_key, now);
    } else {
      ReturnToQueue(queue_key, std::move(unsettled), *first, now, &letters);
    }
  }
  return letters;
}

void HeldDeliveries::ReturnToQueue(const std::string& queue_key, std::vector<Delivery> unsettled,
                                   const Disposition& first, TimePoint now,
                                   std::vector<Letter>* letters) {
  if (first.kind == Disposition::kDeadLetter) {
    // The others of the key wait for it in the queue, which stays busy.
    taken_.insert(unsettled.front().message.publish_time);
    letters->push_back({.delivery = std::move(unsettled.front()), .failure = first.failure});
    unsettled.erase(unsettled.begin());
    queues_.PutBack(queue_key, std::move(unsettled));
    ++letters_;
  } else if (first.kind == Disposition::kAlone) {
    unsettled.front().suspect = true;
    if (first.failure.attempts > 0) unsettled.front().given_up = first.failure;
    queues_.PutBack(queue_key, std::move(unsettled));
    queues_.Done(queue_key, now);
  } else if (first.kind == Disposition::kHeld) {
    Hold(queue_key, std::move(unsettled), now);
  } else {
    queues_.Fail(queue_key, std::move(unsettled), now + first.delay);
  }
}

void HeldDeliveries::Hold(const std::string& queue_key, std::vector<Delivery> unsettled,
                          TimePoint now) {
  const std::string type(unsettled.front().type());
  if (!health_->Suspended(type)) {  // any more
    queues_.PutBack(queue_key, std::move(unsettled));
    return queues_.Done(queue_key, now);
  }
  const bool tried = unsettled.front().probe;
  queues_.Hold(queue_key, std::move(unsettled));
  const auto [it, is_new] = held_.try_emplace(type);
  HeldType& held = it->second;
  if (is_new) {
    for (std::string& failed : queues_.HoldFailed(type)) held.tried.push_back(std::move(failed));
  }
  (tried ? held.tried : held.untried).push_back(queue_key);
  LimitHeld(now);
}

bool HeldDeliveries::LimitHeld(TimePoint now) {
  bool given_back = false;
  const auto exceeds = [this] {
    return queues_.held_messages() > most_held_messages_ || queues_.held_bytes() > most_held_bytes_;
  };
  // One queue of each type stays for the probes, unless that is too much itself: then what comes
  // next of the type is the probe.
  for (size_t stay : {1, 0}) {
    for (auto& [type, held] : held_) {
      while (exceeds() && held.size() > stay &&
             queues_.GiveBack(held.first().back(), now + kGiveBack)) {
        held.first().pop_back();
        given_back = true;
      }
    }
  }
  return given_back;
}

void HeldDeliveries::Resume(TimePoint now) {
  for (auto it = held_.begin(); it != held_.end();) {
    auto& [type, held] = *it;
    const bool suspended = health_->Suspended(type);
    const bool probe = suspended && held.size() > 0 && health_->TakeProbe(type, now);
    for (size_t left = suspended ? (probe ? 1 : 0) : held.size(); left > 0; --left) {
      queues_.Release(held.first().front(), probe, now);
      held.first().pop_front();
    }
    it = suspended ? std::next(it) : held_.erase(it);
  }
}

HeldDeliveries::TimePoint HeldDeliveries::NextLook() const {
  TimePoint next = NextGiveBack();
  for (const auto& [type, held] : held_) {
    if (held.size() > 0) next = std::min(next, health_->NextProbe(type));
  }
  return next;
}

std::optional<std::chrono::milliseconds> HeldDeliveries::LetterDone(Letter letter, TimePoint now) {
  --letters_;
  taken_.extract(letter.delivery.message.publish_time);
  const std::string queue_key = letter.delivery.queue_key();
  if (letter.result == Letter::kPublished) {
    letter_backoff_.Reset();
    --in_hand_;
    queues_.Done(queue_key, now);
    return std::nullopt;
  }
  Disposition disposition{.kind = Disposition::kAlone, .failure = std::move(letter.failure)};
  if (letter.result == Letter::kRefused) {
    disposition.failure.error += " (refused by the dead-letter topic: " + letter.error + ")";
  } else {
    disposition = {.kind = Disposition::kFailed, .delay = letter_backoff_.Next()};
  }
  std::vector<Delivery> event;
  event.push_back(std::move(letter.delivery));
  ReturnToQueue(queue_key, std::move(event), disposition, now, /*letters=*/nullptr);
  if (disposition.kind == Disposition::kAlone) return std::nullopt;
  return disposition.delay;
}

HeldDeliveries::TimePoint HeldDeliveries::NextGiveBack() const {
  const auto retry_at = queues_.NextRetry();
  return giving_back_ || !retry_at ? TimePoint::max() : *retry_at;
}

bool HeldDeliveries::BeginGiveBack(TimePoint now) {
  if (NextGiveBack() > now) return false;
  giving_back_ = true;
  return true;
}

std::vector<uint64_t> HeldDeliveries::TakeSuspended(TimePoint now) {
  giving_back_ = false;
  std::vector<uint64_t> handles = queues_.TakeSuspended(now);
  in_hand_ -= handles.size();
  return handles;
}

std::vector<uint64_t> HeldDeliveries::Drain() {
  held_.clear();
  std::vector<uint64_t> handles = queues_.Drain();
  in_hand_ -= handles.size();
  return handles;
}

}  // namespace postbox::puller
