#include "worker/puller/batch_applier.h"

#include <algorithm>
#include <utility>

#include "proto/rules/sqlstate_class.h"
#include "worker/puller/log.h"

namespace postbox::puller {
namespace {

// The SQLSTATE with which a poisoned message is recorded: invalid_text_representation.
constexpr char kPoisonSqlstate[] = "22P02";
// The SQLSTATE with which an event is recorded whose connection breaks each time.
constexpr char kConnectionSqlstate[] = "08006";
// The SQLSTATE of what is cancelled or not begun because the puller stops: query_canceled.
constexpr char kStoppingSqlstate[] = "57014";
// After so many full transactions in a row that succeed, transactions become larger.
constexpr int kGrowAfter = 4;

// What the status shows of an error. A connection that broke has no SQLSTATE.
std::string ErrorText(const std::string& sqlstate, const std::string& error) {
  return sqlstate.empty() ? error : sqlstate + ": " + error;
}

}  // namespace

AttemptCounter::Attempts AttemptCounter::Increment(std::string_view message_id, bool own,
                                                   TimePoint now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto [it, is_new] = attempts_.try_emplace(std::string(message_id));
  if (is_new) it->second.place = order_.insert(order_.end(), it->first);
  Count& count = it->second.counts[own ? 0 : 1];
  if (++count.count == 1) {
    count.first = now;
    count.applied_before = applied_;
  }
  const Attempts attempts{count.count, count.first, applied_ > count.applied_before};
  while (order_.size() > max_messages_) {
    attempts_.erase(order_.front());
    order_.pop_front();
  }
  known_ = attempts_.size();
  return attempts;
}

void AttemptCounter::Forget(std::string_view message_id) {
  if (known_ == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = attempts_.find(std::string(message_id));
  if (it == attempts_.end()) return;
  order_.erase(it->second.place);
  attempts_.erase(it);
  known_ = attempts_.size();
}

bool AttemptCounter::Known(std::string_view message_id) {
  if (known_ == 0) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  return attempts_.contains(std::string(message_id));
}

std::vector<Disposition> BatchApplier::Apply(const std::vector<Delivery>& batch, TimePoint now) {
  batch_ = &batch;
  now_ = now;
  dispositions_.assign(batch.size(), Disposition());
  decided_.assign(batch.size(), false);
  first_failures_.clear();
  broken_ = false;
  lone_failures_ = 0;
  delay_.reset();

  // Poisoned events come first: whether one of them blocks its key must be known before the other
  // events are applied.
  for (size_t i = 0; i < batch.size(); ++i) {
    if (Behind(i)) continue;
    if (batch[i].given_up) {
      Record(i, *batch[i].given_up, EventFields(policy_.subscription, batch[i]));
    } else if (!batch[i].event.poison.empty()) {
      const InboxResult poison{.sqlstate = kPoisonSqlstate, .error = batch[i].event.poison};
      GiveUpOrRetry(i, poison, Fault::kEvents, /*poison=*/true);
    }
  }
  ApplyRange(0, batch.size());
  return std::move(dispositions_);
}

bool BatchApplier::Behind(size_t i) const {
  if (first_failures_.empty()) return false;
  auto it = first_failures_.find((*batch_)[i].queue_key());
  return it != first_failures_.end() && it->second < i;
}

BatchApplier::Fault BatchApplier::FaultOf(const InboxResult& result) const {
  if (result.sqlstate.empty()) return Fault::kConnection;
  if (result.not_begun) return Fault::kSurroundings;
  if (result.sqlstate == "57014") {
    // The same code says that the statement was cancelled.
    const bool too_long =
        policy_.statement_timeout.count() > 0 && result.took >= policy_.statement_timeout;
    return too_long ? Fault::kSlow : Fault::kSurroundings;
  }
  if (IsContentionSqlstate(result.sqlstate)) return Fault::kContention;
  return IsTransientSqlstate(result.sqlstate) ? Fault::kSurroundings : Fault::kEvents;
}

void BatchApplier::ApplyRange(size_t begin, size_t end) {
  for (size_t at = begin; at < end;) {
    const bool hopeless = broken_ || lone_failures_ >= kMaxLone || Stopping();
    std::vector<size_t> positions;
    for (; at < end && (hopeless || positions.size() < limit_); ++at) {
      if (!decided_[at] && !Behind(at)) positions.push_back(at);
    }
    if (positions.empty()) continue;
    if (hopeless) {
      const bool stopping = !broken_ && Stopping();
      FailTogether(positions,
                   {.sqlstate = broken_ ? "" : (stopping ? kStoppingSqlstate : lone_sqlstate_),
                    .error = stopping ? "not tried, the puller stops"
                                      : "not tried after the failures before"});
    } else {
      ApplyChunk(positions);
    }
  }
}

void BatchApplier::ApplyChunk(const std::vector<size_t>& positions) {
  std::vector<const Delivery*> events;
  events.reserve(positions.size());
  for (size_t i : positions) events.push_back(&(*batch_)[i]);

  InboxResult result = inbox_->Apply(events);
  if (result.ok) {
    transient_backoff_.Reset();
    attempts_->NoteApplied();
    lone_failures_ = 0;
    Grow(positions.size(), result.took);
    for (size_t i = 0; i < positions.size(); ++i) {
      Settle(positions[i], std::move(result.outcomes[i]));
    }
    return;
  }
  const Fault fault = FaultOf(result);
  if (fault != Fault::kEvents && fault != Fault::kSurroundings && positions.size() > 1) {
    limit_ = std::max<size_t>(1, std::min(limit_, positions.size()) / 2);
    fitted_ = 0;
  }
  if (fault == Fault::kSurroundings || (fault == Fault::kConnection && positions.size() > 1)) {
    FailTogether(positions, result);
  } else if (positions.size() > 1) {
    Split(positions, result, fault);
  } else {
    if (fault != Fault::kEvents) {
      ++lone_failures_;
      lone_sqlstate_ = result.sqlstate;
    }
    GiveUpOrRetry(positions[0], result, fault, /*poison=*/false);
  }
}

void BatchApplier::Split(const std::vector<size_t>& positions, const InboxResult& result,
                         Fault fault) {
  const size_t begin = positions.front();
  const size_t end = positions.back() + 1;
  if (result.event_at && *result.event_at < positions.size()) {
    const size_t named = positions[*result.event_at];
    ApplyRange(begin, named);
    if (fault == Fault::kEvents) {
      ApplyRange(named, named + 1);
    } else if (!Behind(named)) {
      // It may take as long again. What else is in the batch does not wait for it.
      Decide(named, {.kind = Disposition::kAlone});
    }
    ApplyRange(named + 1, end);
  } else {
    const size_t middle = positions[positions.size() / 2];
    ApplyRange(begin, middle);
    ApplyRange(middle, end);
  }
}

void BatchApplier::Grow(size_t events, std::chrono::milliseconds took) {
  if (events < limit_ || limit_ >= policy_.batch_size) return;
  if (policy_.statement_timeout.count() > 0 && took * 4 > policy_.statement_timeout) return;
  if (++fitted_ < kGrowAfter) return;
  limit_ = std::min(policy_.batch_size, limit_ * 2);
  fitted_ = 0;
}

void BatchApplier::GiveUpOrRetry(size_t i, const InboxResult& result, Fault fault, bool poison) {
  if (broken_) return FailTogether({i}, {.error = "connection lost"});
  if (Stopping()) return FailTogether({i}, result);
  if (fault == Fault::kConnection) {
    broken_ = true;
  } else {
    // A good event fails, too, if the inbox is dropped or a projection lacks a right. In that case
    // the event is not at fault.
    InboxResult probe = inbox_->Apply({});
    if (!probe.ok) return FailTogether({i}, probe);
  }

  const Delivery& delivery = (*batch_)[i];
  const bool own = fault == Fault::kEvents;
  const auto attempts = attempts_->Increment(delivery.message.message_id, own, now_);
  EventFailure failure{result.sqlstate.empty() ? kConnectionSqlstate : result.sqlstate,
                       result.error, attempts.count};
  Fields fields = EventFields(policy_.subscription, delivery);
  fields.update(
      {{"sqlstate", failure.sqlstate}, {"error", failure.error}, {"attempts", failure.attempts}});

  bool give_up = poison || attempts.count >= policy_.max_attempts;
  if (!own) {
    const auto failing = now_ - attempts.first;
    give_up = give_up && ((attempts.others_applied && failing >= policy_.patience) ||
                          (fault == Fault::kSlow && failing >= kLongPatience * policy_.patience));
  }
  if (policy_.on_error == OnError::kNack || !give_up) {
    const auto delay = BackoffDelay(policy_.backoff, attempts.count, pubsub::JitterRandom());
    fields["retry_after_ms"] = delay.count();
    LogRepeated("event failed", fields);
    status_->Failed(ErrorText(failure.sqlstate, failure.error), delay, now_);
    return Fail(i, delay);
  }
  if (!poison && fault == Fault::kEvents) {
    // The cause of the failure may have been repaired just before the probe.
    InboxResult last = inbox_->Apply({&delivery});
    if (last.ok) return Settle(i, std::move(last.outcomes[0]));
    if (FaultOf(last) != Fault::kEvents) return FailTogether({i}, last);
    failure.sqlstate = std::move(last.sqlstate);
    failure.error = std::move(last.error);
    fields.update({{"sqlstate", failure.sqlstate}, {"error", failure.error}});
  }
  GiveUp(i, std::move(failure), std::move(fields));
}

void BatchApplier::GiveUp(size_t i, EventFailure failure, Fields fields) {
  if (policy_.on_error == OnError::kDeadLetterTopic) {
    return Decide(i, {.kind = Disposition::kDeadLetter, .failure = std::move(failure)});
  }
  Record(i, failure, std::move(fields));
}

void BatchApplier::Record(size_t i, const EventFailure& failure, Fields fields) {
  // It is recorded with the next connection.
  if (broken_) return Decide(i, {.kind = Disposition::kAlone, .failure = failure});
  const InboxResult recorded = inbox_->RecordDeadLetter((*batch_)[i], failure);
  if (!recorded.ok) return FailTogether({i}, recorded);
  fields.update({{"sqlstate", failure.sqlstate},
                 {"error", failure.error},
                 {"attempts", failure.attempts},
                 {"outcome", "rejected"}});
  LogRepeated("event rejected", fields);
  Settle(i, "rejected");
}

void BatchApplier::Settle(size_t i, std::string outcome) {
  decided_[i] = true;
  dispositions_[i].kind = Disposition::kSettled;
  dispositions_[i].outcome = std::move(outcome);
  attempts_->Forget((*batch_)[i].message.message_id);
}

void BatchApplier::Decide(size_t i, Disposition disposition) {
  decided_[i] = true;
  dispositions_[i] = std::move(disposition);
  auto [it, is_new] = first_failures_.try_emplace((*batch_)[i].queue_key(), i);
  if (!is_new && i < it->second) it->second = i;
}

void BatchApplier::Fail(size_t i, std::chrono::milliseconds delay) {
  Decide(i, {.kind = Disposition::kFailed, .delay = delay});
}

void BatchApplier::FailTogether(const std::vector<size_t>& positions, const InboxResult& result) {
  if (result.sqlstate.empty()) broken_ = true;
  // One failure of many parts is one failure.
  if (!delay_) delay_ = transient_backoff_.Next();
  const auto delay = *delay_;
  Fields fields = positions.size() == 1 ? EventFields(policy_.subscription, (*batch_)[positions[0]])
                                        : Fields{{"subscription", policy_.subscription}};
  fields.update({{"events", positions.size()},
                 {"sqlstate", result.sqlstate},
                 {"error", result.error},
                 {"retry_after_ms", delay.count()}});
  LogRepeated("batch failed", fields);
  status_->Failed(ErrorText(result.sqlstate, result.error), delay, now_);
  for (size_t i : positions) {
    if (!Behind(i)) Fail(i, delay);
  }
}

}  // namespace postbox::puller
