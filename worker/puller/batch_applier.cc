#include "worker/puller/batch_applier.h"

#include <utility>

#include "proto/rules/sqlstate_class.h"
#include "worker/puller/log.h"

namespace postbox::puller {
namespace {

// The SQLSTATE with which a poisoned message is recorded: invalid_text_representation.
constexpr char kPoisonSqlstate[] = "22P02";

}  // namespace

int AttemptCounter::Increment(const std::string& message_id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto [it, is_new] = attempts_.try_emplace(message_id, 0);
  const int attempts = ++it->second;
  if (is_new) {
    order_.push_back(message_id);
    while (order_.size() > max_messages_) {
      attempts_.erase(order_.front());
      order_.pop_front();
    }
  }
  return attempts;
}

void AttemptCounter::Forget(const std::string& message_id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  attempts_.erase(message_id);  // its entry in order_ is removed later, by Increment
}

std::vector<Disposition> BatchApplier::Apply(const std::vector<Delivery>& batch) {
  batch_ = &batch;
  dispositions_.assign(batch.size(), Disposition());
  decided_.assign(batch.size(), false);
  first_failures_.clear();
  broken_ = false;

  // Poisoned events come first: whether one of them blocks its key must be known before the other
  // events are applied.
  for (size_t i = 0; i < batch.size(); ++i) {
    if (batch[i].event.poison.empty() || Behind(i)) continue;
    GiveUpOrRetry(i, kPoisonSqlstate, batch[i].event.poison, /*poison=*/true);
  }
  ApplyRange(0, batch.size());
  return std::move(dispositions_);
}

bool BatchApplier::Behind(size_t i) const {
  auto it = first_failures_.find((*batch_)[i].queue_key());
  return it != first_failures_.end() && it->second < i;
}

void BatchApplier::ApplyRange(size_t begin, size_t end) {
  std::vector<size_t> positions;
  std::vector<const Delivery*> events;
  for (size_t i = begin; i < end; ++i) {
    if (decided_[i] || Behind(i)) continue;
    positions.push_back(i);
    events.push_back(&(*batch_)[i]);
  }
  if (positions.empty()) return;
  if (broken_) return FailTransient(positions, "", "connection lost");

  InboxResult result = inbox_->Apply(events);
  if (result.ok) {
    transient_backoff_.Reset();
    for (size_t i = 0; i < positions.size(); ++i) {
      Settle(positions[i], std::move(result.outcomes[i]));
    }
    return;
  }
  const bool transient = IsTransientSqlstate(result.sqlstate);
  if (positions.size() > 1 && (!transient || IsConflictSqlstate(result.sqlstate))) {
    const size_t middle = positions[positions.size() / 2];
    ApplyRange(begin, middle);
    ApplyRange(middle, end);
  } else if (transient) {
    FailTransient(positions, result.sqlstate, result.error);
  } else {
    GiveUpOrRetry(positions[0], result.sqlstate, result.error, /*poison=*/false);
  }
}

void BatchApplier::GiveUpOrRetry(size_t i, std::string sqlstate, std::string error, bool poison) {
  if (broken_) return FailTransient({i}, "", "connection lost");
  // A good event fails, too, if the inbox is dropped or a projection lacks a right. In that case
  // the event is not at fault.
  InboxResult probe = inbox_->Apply({});
  if (!probe.ok) return FailTransient({i}, probe.sqlstate, probe.error);

  const Delivery& delivery = (*batch_)[i];
  const int attempts = attempts_->Increment(delivery.message.message_id);
  Fields fields = EventFields(policy_.subscription, delivery);
  fields.update({{"sqlstate", sqlstate}, {"error", error}, {"attempts", attempts}});

  if (policy_.on_error == OnError::kNack || (!poison && attempts < policy_.max_attempts)) {
    const auto delay = BackoffDelay(policy_.backoff, attempts, pubsub::JitterRandom());
    fields["retry_after_ms"] = delay.count();
    LogWarn("event failed", fields);
    Fail(i, delay);
    return;
  }
  if (!poison) {
    // The cause of the failure may have been repaired just before the probe.
    InboxResult last = inbox_->Apply({&delivery});
    if (last.ok) return Settle(i, std::move(last.outcomes[0]));
    if (IsTransientSqlstate(last.sqlstate)) return FailTransient({i}, last.sqlstate, last.error);
    sqlstate = std::move(last.sqlstate);
    error = std::move(last.error);
    fields.update({{"sqlstate", sqlstate}, {"error", error}});
  }
  if (policy_.on_error == OnError::kReject) {
    InboxResult recorded = inbox_->RecordDeadLetter(delivery, sqlstate, error, attempts);
    if (!recorded.ok) return FailTransient({i}, recorded.sqlstate, recorded.error);
    fields["outcome"] = "rejected";
    LogWarn("event rejected", fields);
    Settle(i, "rejected");
  } else {
    std::string reason;
    if (!publish_(delivery, sqlstate, error, &reason)) {
      const auto delay = transient_backoff_.Next();
      fields.update({{"publish_error", reason}, {"retry_after_ms", delay.count()}});
      LogWarn("event could not be published to the dead-letter topic", fields);
      Fail(i, delay);
      return;
    }
    fields["outcome"] = "dead_letter_topic";
    LogWarn("event published to the dead-letter topic", fields);
    Settle(i, "dead_letter_topic");
  }
}

void BatchApplier::Settle(size_t i, std::string outcome) {
  decided_[i] = true;
  dispositions_[i].kind = Disposition::kSettled;
  dispositions_[i].outcome = std::move(outcome);
  attempts_->Forget((*batch_)[i].message.message_id);
}

void BatchApplier::Fail(size_t i, std::chrono::milliseconds delay) {
  decided_[i] = true;
  dispositions_[i].kind = Disposition::kFailed;
  dispositions_[i].delay = delay;
  auto [it, is_new] = first_failures_.try_emplace((*batch_)[i].queue_key(), i);
  if (!is_new && i < it->second) it->second = i;
}

void BatchApplier::FailTransient(const std::vector<size_t>& positions, const std::string& sqlstate,
                                 const std::string& error) {
  if (sqlstate.empty()) broken_ = true;
  const auto delay = transient_backoff_.Next();
  Fields fields = positions.size() == 1 ? EventFields(policy_.subscription, (*batch_)[positions[0]])
                                        : Fields{{"subscription", policy_.subscription}};
  fields.update({{"events", positions.size()},
                 {"sqlstate", sqlstate},
                 {"error", error},
                 {"retry_after_ms", delay.count()}});
  LogWarn("batch failed", fields);
  for (size_t i : positions) {
    if (!Behind(i)) Fail(i, delay);
  }
}

}  // namespace postbox::puller
