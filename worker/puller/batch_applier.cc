#include "worker/puller/batch_applier.h"

#include <algorithm>
#include <utility>

#include "extension/rules/sqlstate_class.h"
#include "worker/puller/log.h"

namespace postbox::puller {
namespace {

// The SQLSTATE with which a poisoned message is recorded: invalid_text_representation.
constexpr char kPoisonSqlstate[] = "22P02";
// The SQLSTATE with which an event is recorded whose connection breaks each time.
constexpr char kConnectionSqlstate[] = "08006";
// The SQLSTATE of what is cancelled or not begun because the puller stops: query_canceled.
constexpr char kStoppingSqlstate[] = "57014";
// An event that has used up its attempts waits for what the others of its type do. It is tried
// again after so long at least, because more attempts tell nothing, and at most, because its key
// waits.
constexpr std::chrono::milliseconds kShortestLook{500};
constexpr std::chrono::milliseconds kLongestLook{2000};

// What the status shows of an error. A connection that broke has no SQLSTATE.
std::string ErrorText(const std::string& sqlstate, const std::string& error) {
  return sqlstate.empty() ? error : sqlstate + ": " + error;
}

}  // namespace

std::vector<Disposition> BatchApplier::Apply(const std::vector<Delivery>& batch, TimePoint now) {
  now_ = now;
  dispositions_.Begin(batch);
  broken_ = false;
  lone_failures_ = 0;
  delay_.reset();

  // Poisoned events come first: whether one of them blocks its key must be known before the other
  // events are applied.
  for (size_t i = 0; i < batch.size(); ++i) {
    if (dispositions_.Behind(i)) continue;
    if (batch[i].given_up) {
      Record(i, *batch[i].given_up, EventFields(policy_.subscription, batch[i]));
    } else if (!batch[i].event.poison.empty()) {
      const InboxResult poison{.sqlstate = kPoisonSqlstate, .error = batch[i].event.poison};
      FailAlone(i, poison, Fault::kEvents, /*poison=*/true);
    } else if (!batch[i].probe && health_->Suspended(batch[i].type()) &&
               !health_->TakeProbe(batch[i].type(), now_)) {
      dispositions_.Fail(i, {.kind = Disposition::kHeld});
    }
  }
  ApplyRange(0, batch.size());
  return dispositions_.Take();
}

BatchApplier::Fault BatchApplier::FaultOf(const InboxResult& result) const {
  if (result.not_begun) return Fault::kSurroundings;
  if (result.sqlstate.empty()) return Fault::kConnection;
  if (result.sqlstate == "57014") {
    // The same code says that the statement was cancelled.
    const bool too_long =
        policy_.statement_timeout.count() > 0 && result.took >= policy_.statement_timeout;
    return too_long ? Fault::kSlow : Fault::kSurroundings;
  }
  if (result.sqlstate == kPauseSqlstate) return Fault::kPause;
  if (IsContentionSqlstate(result.sqlstate)) return Fault::kContention;
  return IsTransientSqlstate(result.sqlstate) ? Fault::kSurroundings : Fault::kEvents;
}

void BatchApplier::ApplyRange(size_t begin, size_t end) {
  for (size_t at = begin; at < end;) {
    const bool hopeless = broken_ || lone_failures_ >= kMaxLone || Stopping();
    std::vector<size_t> positions;
    for (; at < end && (hopeless || positions.size() < limit()); ++at) {
      if (dispositions_.Open(at)) positions.push_back(at);
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
  for (size_t i : positions) events.push_back(&dispositions_.delivery(i));

  const ConsumerHealth::Mark begun = health_->Begin();
  InboxResult result = inbox_->Apply(events);
  if (result.ok) {
    NoteSettled(positions, result.outcomes, begun);
    transient_backoff_.Reset();
    attempts_->NoteApplied();
    lone_failures_ = 0;
    size_.Succeeded(positions.size(), result.took);
    for (size_t i = 0; i < positions.size(); ++i) {
      Settle(positions[i], std::move(result.outcomes[i]));
    }
    return;
  }
  const Fault fault = FaultOf(result);
  if (fault == Fault::kPause) return WaitForResume(positions, result);
  if (fault != Fault::kEvents && fault != Fault::kSurroundings) size_.Failed(positions.size());
  if (fault == Fault::kSurroundings || (fault == Fault::kConnection && positions.size() > 1)) {
    FailTogether(positions, result);
  } else if (positions.size() > 1) {
    Split(positions, result, fault);
  } else {
    if (fault != Fault::kEvents) {
      ++lone_failures_;
      lone_sqlstate_ = result.sqlstate;
    }
    FailAlone(positions[0], result, fault, /*poison=*/false);
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
    } else if (!dispositions_.Behind(named)) {
      // It may take as long again. What else is in the batch does not wait for it.
      dispositions_.Fail(named, {.kind = Disposition::kAlone});
    }
    ApplyRange(named + 1, end);
  } else {
    const size_t middle = positions[positions.size() / 2];
    ApplyRange(begin, middle);
    ApplyRange(middle, end);
  }
}

void BatchApplier::WaitForResume(const std::vector<size_t>& positions, const InboxResult& result) {
  const size_t named = positions.size() == 1 ? 0 : result.event_at.value_or(positions.size());
  if (named >= positions.size()) return Split(positions, result, Fault::kPause);
  if (!Judge(positions[named], result, /*paused=*/true).suspended) {
    const auto type = dispositions_.delivery(positions[named]).type();
    std::vector<size_t> same;
    for (size_t i : positions) {
      if (dispositions_.delivery(i).type() == type && dispositions_.Open(i)) same.push_back(i);
    }
    FailTogether(same, result);
  }
  ApplyRange(positions.front(), positions.back() + 1);
}

void BatchApplier::FailAlone(size_t i, const InboxResult& result, Fault fault, bool poison) {
  if (broken_) return FailTogether({i}, {.error = "connection lost"});
  if (Stopping()) return FailTogether({i}, result);
  ConsumerHealth::Verdict verdict;
  if (fault == Fault::kConnection) {
    broken_ = true;
  } else {
    // A good event fails, too, if the inbox is dropped or a projection lacks a right. In that case
    // the event is not at fault.
    const InboxResult probe = inbox_->Apply({});
    const InboxResult& cause = probe.ok ? result : probe;
    // An event without a type is at fault, whatever others do.
    const bool typed = !dispositions_.delivery(i).type().empty();
    if (typed && !poison && fault == Fault::kEvents && FaultOf(cause) == Fault::kEvents) {
      verdict = Judge(i, cause, /*paused=*/false);
      if (verdict.suspended) return;
    }
    if (!probe.ok) return FailTogether({i}, probe);
  }
  GiveUpOrRetry(i, result, fault, poison, verdict);
}

ConsumerHealth::Verdict BatchApplier::Judge(size_t i, const InboxResult& result, bool paused) {
  const Delivery& delivery = dispositions_.delivery(i);
  const std::string key = delivery.subject();
  const auto verdict = health_->Failed({.type = delivery.type(),
                                        .key = key,
                                        .sqlstate = result.sqlstate,
                                        .error = Cut(result.error, PullStatus::kMaxErrorBytes),
                                        .paused = paused},
                                       now_);
  if (!verdict.suspended) return verdict;
  if (!paused) status_->Failed(ErrorText(result.sqlstate, result.error), verdict.retry_in, now_);
  if (verdict.begins) {
    Fields fields = EventFields(policy_.subscription, delivery);
    fields.update({{"sqlstate", result.sqlstate}, {"error", result.error}});
    LogRepeated(paused ? "events of a type wait, because what takes them is paused"
                       : "events of a type are suspended, they all fail with the same error",
                fields);
  }
  for (size_t each = 0; each < dispositions_.size(); ++each) {
    const bool same = dispositions_.delivery(each).type() == delivery.type();
    if (same && dispositions_.Open(each)) {
      dispositions_.Fail(each, {.kind = Disposition::kHeld});
    }
  }
  return verdict;
}

void BatchApplier::NoteSettled(const std::vector<size_t>& positions,
                               const std::vector<std::string>& outcomes,
                               ConsumerHealth::Mark begun) {
  if (health_->Quiet()) return;
  std::optional<std::pair<std::string_view, bool>> before;  // many are alike
  for (size_t i = 0; i < positions.size(); ++i) {
    const std::string_view type = dispositions_.delivery(positions[i]).type();
    const bool effect = outcomes[i] == "applied" || outcomes[i] == "ignored";
    if (before == std::pair(type, effect)) continue;
    before = std::pair(type, effect);
    const auto ended = health_->Settled(type, effect, begun, now_);
    if (!ended) continue;
    const auto lasted = std::chrono::duration_cast<std::chrono::seconds>(now_ - ended->since);
    LogInfo("events of a type are not suspended any more", {{"subscription", policy_.subscription},
                                                            {"event_type", ended->type},
                                                            {"seconds", lasted.count()}});
  }
}

bool BatchApplier::IsToBeGivenUp(Fault fault, const AttemptCounter::Attempts& attempts,
                                 const ConsumerHealth::Verdict& verdict) const {
  if (attempts.count < policy_.max_attempts) return false;
  const auto failing = now_ - attempts.first;
  if (fault == Fault::kEvents) {
    return verdict.mark == 0 || health_->IsEventsFault(verdict, attempts.previous, failing);
  }
  return (attempts.others_applied && failing >= policy_.patience) ||
         (fault == Fault::kSlow && failing >= kLongPatience * policy_.patience);
}

void BatchApplier::GiveUpOrRetry(size_t i, const InboxResult& result, Fault fault, bool poison,
                                 const ConsumerHealth::Verdict& verdict) {
  const Delivery& delivery = dispositions_.delivery(i);
  const auto attempts = attempts_->Increment(delivery.message.message_id, fault == Fault::kEvents,
                                             now_, verdict.mark, verdict.counts_from);
  EventFailure failure{result.sqlstate.empty() ? kConnectionSqlstate : result.sqlstate,
                       result.error, attempts.count};
  Fields fields = EventFields(policy_.subscription, delivery);
  fields.update(
      {{"sqlstate", failure.sqlstate}, {"error", failure.error}, {"attempts", failure.attempts}});

  const bool give_up = poison || IsToBeGivenUp(fault, attempts, verdict);
  if (policy_.on_error == OnError::kNack || !give_up) {
    auto delay = BackoffDelay(policy_.backoff, attempts.count, pubsub::JitterRandom());
    const bool waits = policy_.on_error != OnError::kNack && attempts.count >= policy_.max_attempts;
    if (waits && fault == Fault::kEvents) {
      delay = std::clamp(delay, kShortestLook, kLongestLook);
    }
    fields["retry_after_ms"] = delay.count();
    LogRepeated("event failed", fields);
    status_->Failed(ErrorText(failure.sqlstate, failure.error), delay, now_);
    return dispositions_.Fail(
        i, {.kind = Disposition::kFailed, .sqlstate = failure.sqlstate, .delay = delay});
  }
  if (!poison && fault == Fault::kEvents) {
    // The cause of the failure may have been repaired just before the probe.
    const ConsumerHealth::Mark begun = health_->Begin();
    InboxResult last = inbox_->Apply({&delivery});
    if (last.ok) {
      NoteSettled({i}, last.outcomes, begun);
      return Settle(i, std::move(last.outcomes[0]));
    }
    if (FaultOf(last) != Fault::kEvents) return FailTogether({i}, last);
    failure.sqlstate = std::move(last.sqlstate);
    failure.error = std::move(last.error);
    fields.update({{"sqlstate", failure.sqlstate}, {"error", failure.error}});
  }
  if (policy_.on_error == OnError::kDeadLetterTopic) {
    return dispositions_.Fail(i, {.kind = Disposition::kDeadLetter, .failure = std::move(failure)});
  }
  Record(i, failure, std::move(fields));
}

void BatchApplier::Record(size_t i, const EventFailure& failure, Fields fields) {
  // It is recorded with the next connection.
  if (broken_) return dispositions_.Fail(i, {.kind = Disposition::kAlone, .failure = failure});
  const bool park = policy_.on_error == OnError::kParkKey;
  const InboxResult recorded = inbox_->RecordDeadLetter(dispositions_.delivery(i), failure, park);
  if (!recorded.ok) return FailTogether({i}, recorded);
  const std::string outcome = recorded.outcomes.at(0);
  fields.update({{"sqlstate", failure.sqlstate},
                 {"error", failure.error},
                 {"attempts", failure.attempts},
                 {"outcome", outcome}});
  LogRepeated(outcome == "parked" ? "event parked, and its key with it" : "event rejected", fields);
  Settle(i, outcome, failure.sqlstate);
}

void BatchApplier::Settle(size_t i, std::string outcome, std::string sqlstate) {
  dispositions_.Settle(i, std::move(outcome), std::move(sqlstate));
  attempts_->Forget(dispositions_.delivery(i).message.message_id);
}

void BatchApplier::FailTogether(const std::vector<size_t>& positions, const InboxResult& result) {
  if (result.sqlstate.empty()) broken_ = true;
  // One failure of many parts is one failure.
  if (!delay_) delay_ = transient_backoff_.Next();
  const auto delay = *delay_;
  Fields fields = positions.size() == 1
                      ? EventFields(policy_.subscription, dispositions_.delivery(positions[0]))
                      : Fields{{"subscription", policy_.subscription}};
  fields.update({{"events", positions.size()},
                 {"sqlstate", result.sqlstate},
                 {"error", result.error},
                 {"retry_after_ms", delay.count()}});
  LogRepeated("batch failed", fields);
  status_->Failed(ErrorText(result.sqlstate, result.error), delay, now_);
  for (size_t i : positions) {
    if (!dispositions_.Behind(i)) {
      dispositions_.Fail(
          i, {.kind = Disposition::kFailed, .sqlstate = result.sqlstate, .delay = delay});
    }
  }
}

}  // namespace postbox::puller
