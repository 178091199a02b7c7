#include "worker/publisher/policy/suspension_policy.h"

namespace postbox::publisher {

using std::chrono::milliseconds;

void SuspensionPolicy::Read(int failures, Moment retry_at, Moment since) {
  failures_ = failures;
  retry_at_ = retry_at;
  since_ = since;
  if (failures_ == 0) try_ = Try::kProbe;
}

void SuspensionPolicy::Fail(Moment moment) {
  failures_ = std::max(failures_, 1);
  retry_at_ = moment;
}

Moment SuspensionPolicy::ClaimAt(std::size_t outstanding) const {
  const bool free = has_published_ && failures_ == 0;
  return free || outstanding == 0 ? retry_at_ : std::max(retry_at_, next_first_);
}

std::size_t SuspensionPolicy::Most(Moment now, std::size_t batch) const {
  if (failures_ == 0 || try_ == Try::kBatch) return batch;
  return try_ == Try::kRefusing && SettlesEach(now) ? batch : std::min(batch, kProbeEvents);
}

void SuspensionPolicy::Claimed(Moment now, TimeScale scaled) {
  next_first_ = After(now, failures_ > 0 ? scaled(kProbePatience) : kFirstPatience);
}

bool SuspensionPolicy::RefusedThroughout(const Results& results) const {
  if (results.published > 0 || results.failure != Results::Failure::kNone || results.refused == 0) {
    return false;
  }
  if (try_ == Try::kRefusing && failures_ > 0) return true;
  if (has_published_) return results.refused >= kManyRefused;
  return results.refused > 1 || refused_in_row_ > 1;
}

bool SuspensionPolicy::SettlesEach(Moment now) const {
  constexpr int kMostDoublings = 32;  // then the backoff does not grow any more
  const int delays = max_attempts_ - 1;
  milliseconds patience(0);
  for (int i = 1; i <= std::min(delays, kMostDoublings); ++i) {
    patience += pubsub::BackoffDelay(backoff_, i, 0.5);
  }
  patience += backoff_.cap * std::max(delays - kMostDoublings, 0);
  if (failures_ == 0) return delays == 0;
  return Between(since_, now) >= patience;
}

SuspensionPolicy::Verdict SuspensionPolicy::Judge(Moment now, const Results& results) const {
  if (results.failure == Results::Failure::kBroken) return Verdict::kBroken;
  if (results.failure == Results::Failure::kUnanswered) return Verdict::kUnanswered;
  if (failures_ > 0 && try_ == Try::kProbe && results.refused == 1 && results.published == 0) {
    return Verdict::kUndecided;
  }
  if (!RefusedThroughout(results)) return Verdict::kNone;
  return SettlesEach(now) ? Verdict::kSettleEach : Verdict::kRefuses;
}

pubsub::BackoffPolicy SuspensionPolicy::BackoffFor(Verdict verdict, TimeScale scaled) const {
  if (verdict == Verdict::kUnanswered) return scaled(kOutageBackoff);
  const pubsub::BackoffPolicy most = scaled(kTopicBackoff);
  return {std::min(most.base, backoff_.base), most.factor, std::min(most.cap, backoff_.cap)};
}

bool SuspensionPolicy::Recovers(Verdict verdict, const Results& results) const {
  if (Suspends(verdict) || failures_ == 0) return false;
  return results.published > 0 || verdict == Verdict::kSettleEach;
}

void SuspensionPolicy::Settled(Moment now, Verdict verdict, const Results& results, bool lost) {
  if (results.published > 0) {
    try_ = Try::kProbe;
    has_published_ = true;
    refused_in_row_ = 0;
  } else {
    refused_in_row_ += results.refused;
    if (refuses_many()) has_published_ = false;
  }
  if (Suspends(verdict)) {
    try_ = verdict == Verdict::kRefuses ? Try::kRefusing : Try::kProbe;
  } else if (verdict == Verdict::kUndecided) {
    try_ = Try::kBatch;
  } else if (Recovers(verdict, results) && !lost) {
    failures_ = 0;
  } else if (failures_ > 0 && results.refused == 0) {
    if (results.unsent > 0) {
      try_ = Try::kBatch;
    } else {
      // Behind a message of their key that was given up and is still on its way, perhaps for long.
      retry_at_ = std::max(retry_at_, After(now, kFirstPatience));
    }
  }
}

}  // namespace postbox::publisher
