#include "worker/publisher/lane_results.h"

#include "worker/publisher/base/failpoint.h"
#include "worker/publisher/base/passing_error.h"
#include "worker/publisher/base/registration.h"
#include "worker/publisher/base/server_text.h"
#include "worker/publisher/scale.h"
#include "worker/publisher/store/publication_state.h"

namespace postbox::publisher {
namespace {

using pubsub::PublishStatus;
using std::chrono::milliseconds;
using Failure = SuspensionPolicy::Results::Failure;
using Verdict = SuspensionPolicy::Verdict;

std::size_t Published(std::span<const EventPointer> events) {
  return static_cast<std::size_t>(std::count_if(
      events.begin(), events.end(),
      [](const EventPointer& event) { return event->status == PublishStatus::kPublished; }));
}

// A row that cannot be an event was never encoded, and never sent.
bool IsRefused(const ClaimedEvent& event) {
  return event.status == PublishStatus::kRejected && !event.encoded.empty();
}

std::string ErrorOf(const ClaimedEvent& event) {
  return Shortened(ServerText(event.error), kMaxReason);
}

}  // namespace

void LaneResults::Add(EventPointer event, bool leaving) {
  event->leaving = leaving || finish_by_ != 0;
  --outstanding_;
  collected_.push_back(std::move(event));
}

LaneResults::Judgement LaneResults::Summarize() const {
  Judgement judgement;
  SuspensionPolicy::Results& results = judgement.results;
  results.published = Published(collected_);
  for (const EventPointer& event : collected_) {
    if (event->leaving) continue;
    const bool unanswered = event->status == PublishStatus::kUnreachable;
    if ((unanswered || event->status == PublishStatus::kTopicBroken) &&
        results.failure == Failure::kNone) {
      results.failure = unanswered ? Failure::kUnanswered : Failure::kBroken;
      judgement.error = ErrorOf(*event);
    }
    results.refused += IsRefused(*event) && event->attempts == 0;
    results.unsent += event->status == PublishStatus::kRejected && event->encoded.empty();
  }
  return judgement;
}

std::string LaneResults::GiveBackRefused() {
  std::string error;
  for (const EventPointer& event : collected_) {
    if (!IsRefused(*event)) continue;
    if (error.empty()) error = ErrorOf(*event);
    event->status = PublishStatus::kTopicBroken;
  }
  return error;
}

bool LaneResults::Judge(Moment now, bool leaving) {
  judgement_ = Summarize();
  waits_for_rest_ = !leaving && failures_->topic().Waits(judgement_.results, outstanding_);
  if (waits_for_rest_) return false;
  if (!leaving) judgement_.verdict = failures_->topic().Judge(now, judgement_.results);
  if (judgement_.verdict == Verdict::kUndecided) {
    GiveBackRefused();
  } else if (judgement_.verdict == Verdict::kRefuses) {
    judgement_.error = "every event of a batch was refused: " + GiveBackRefused();
  }
  settling_ = std::exchange(collected_, {});
  settling_since_ = now;
  return true;
}

LaneResults::Progress LaneResults::Step(Moment now, bool leaving, Budget* budget) {
  if (!leaving && NextStep() > now) return Progress::kNothing;
  leaving = leaving || finish_by_ != 0;
  if (!InParts() && !Judge(now, leaving)) return Progress::kNothing;
  const std::size_t size = std::min(settling_.size(), size_.value());
  const auto part = std::span<const EventPointer>(settling_).first(size);
  if (!Store(now, part, leaving)) return Progress::kNothing;
  std::size_t bytes = 0;
  for (const EventPointer& event : part) bytes += event->bytes();
  budget->Settled(size, bytes, tenant_.get());
  settling_.erase(settling_.begin(), settling_.begin() + static_cast<std::ptrdiff_t>(size));
  failures_in_row_ = 0;
  step_at_ = 0;
  failures_->EndPassing();
  if (InParts()) return Progress::kPart;
  if (!leaving) Failpoint("after_mark");
  SuspensionPolicy& topic = failures_->topic();
  topic.Settled(now, judgement_.verdict, judgement_.results, judgement_.lost);
  if (judgement_.results.published > 0) {
    tenant_->published_at = now;
    tenant_->has_published = true;
  } else if (topic.refuses_many()) {
    tenant_->has_published = false;
  }
  // An outage has its own lines (outage.h).
  if (SuspensionPolicy::Suspends(judgement_.verdict) &&
      judgement_.verdict != Verdict::kUnanswered) {
    failures_->Log(judgement_.error);
  }
  return collected_.empty() ? Progress::kAll : Progress::kPart;
}

LaneResults::Effect LaneResults::StoreVerdict(bool leaving, Transaction* transaction) const {
  const SuspensionPolicy& topic = failures_->topic();
  Effect effect;
  if (SuspensionPolicy::Suspends(judgement_.verdict) && !leaving) {
    transaction->Begin();
    effect.suspended_until =
        Suspend(*publication_, judgement_.error, topic.BackoffFor(judgement_.verdict, Scale()));
  } else if (topic.Recovers(judgement_.verdict, judgement_.results) && !judgement_.lost) {
    transaction->Begin();
    effect.recovered = EndSuspension(*publication_);
  }
  return effect;
}

bool LaneResults::Store(Moment now, std::span<const EventPointer> part, bool leaving) {
  const bool last = part.size() == settling_.size();
  Effect effect;
  const Moment begin = GetCurrentTimestamp();
  try {
    // A crash that loses this commit makes events leave twice, which is allowed. Waiting for the
    // disk here would cost more than it saves.
    Transaction transaction("postbox: storing the results of publishing", Durability::kSoon);
    transaction.Limit(publication_->outbox, tenant_->TimeOf(limit_));
    transaction.Run([&] {
      judgement_.lost = !source_->Settle(part, &transaction) || judgement_.lost;
      if (last) effect = StoreVerdict(leaving, &transaction);
    });
    if (transaction.committed()) AnnouncePublished();
  } catch (const PostgresError& error) {
    tenant_->ChargeFailure(begin, limit_);
    FailedToStore(now, part.size(), error, leaving);
    return false;
  }
  const SuspensionPolicy::Results& results = judgement_.results;
  tenant_->Charge(begin, Published(part), limit_, results.refused > 0 && results.published == 0);
  CapPauseToLease(begin);
  if (!judgement_.lost) {
    limit_.Ended();
    const milliseconds took = Between(begin, GetCurrentTimestamp());
    if (took < Scale()(TurnLimit::kShortest) / 4) size_.Grow(part.size());
  }
  if (!last) return true;
  if (effect.suspended_until == 0 && SuspensionPolicy::Suspends(judgement_.verdict)) {
    judgement_.verdict = Verdict::kNone;
  }
  SuspensionPolicy& topic = failures_->topic();
  topic.Postpone(std::max(topic.retry_at(), effect.suspended_until));
  if (effect.recovered) {
    // The other lanes do not wait for the end of the suspension that they know of.
    Pg([] {
      RaiseConfigGeneration();
      WakePublishers(MyDatabaseId);
    });
  }
  return true;
}

void LaneResults::FailedToStore(Moment now, std::size_t part, const PostgresError& error,
                                bool leaving) {
  source_->RollBack(Reason(error));
  const bool passing = IsPassing(error);
  const auto delay = pubsub::BackoffDelay(Scale()(passing ? kLockBackoff : kErrorBackoff),
                                          ++failures_in_row_, pubsub::JitterRandom());
  step_at_ = After(now, delay);
  if (!passing) size_.Shrink(part);
  if (!leaving || StopRequested()) failures_->FailStatement(now, error, &limit_);
}

void LaneResults::CapPauseToLease(Moment begin) {
  const Moment end = GetCurrentTimestamp();
  const milliseconds since = Between(settling_since_, end);
  if (since < LongestWait() || since > 3 * LongestWait()) return;
  tenant_->account.EndWaitAt(end + (end - begin));
}

}  // namespace postbox::publisher
