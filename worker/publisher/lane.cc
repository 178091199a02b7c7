#include "worker/publisher/lane.h"

#include "extension/shared/settings.h"
#include "extension/shared/time_scale.h"
#include "proto/rules/resource_name.h"
#include "worker/publisher/base/failpoint.h"
#include "worker/publisher/base/lane_table.h"
#include "worker/publisher/base/limited_log.h"
#include "worker/publisher/base/passing_error.h"
#include "worker/publisher/base/publish_timeout.h"
#include "worker/publisher/base/registration.h"
#include "worker/publisher/base/server_text.h"
#include "worker/publisher/base/step_limit.h"
#include "worker/publisher/make_sources.h"

extern "C" {
#include <storage/lmgr.h>
}

namespace postbox::publisher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// After a statement on the outbox has failed.
constexpr pubsub::BackoffPolicy kErrorBackoff{seconds(1), 2.0, seconds(30)};
// While the topic is broken, or refuses everything: whoever mends it is not to wait for long. Less
// if the publication's own backoff is.
constexpr pubsub::BackoffPolicy kTopicBackoff{seconds(1), 2.0, seconds(4)};
// While nothing goes through. The client has tried for postbox.publish_timeout by then, with short
// pauses, and does so again with what is claimed next; in between there must be no long pause.
constexpr pubsub::BackoffPolicy kOutageBackoff{milliseconds(500), 2.0, seconds(1)};
// While the outbox is locked. A try costs next to nothing.
constexpr pubsub::BackoffPolicy kLockBackoff{milliseconds(500), 1.5, seconds(5)};
constexpr milliseconds kLockRetry(100);
// A lock that is held for longer is shown.
constexpr milliseconds kLockPatience = seconds(1);
// After the code of an outbox has ended a worker.
constexpr pubsub::BackoffPolicy kSuspectBackoff{seconds(30), 2.0, seconds(3600)};

// A publication that failed before is tried with one event, and one of which nothing has gone
// through yet with not too many.
constexpr std::size_t kProbeEvents = 1;
constexpr std::size_t kFirstEvents = 500;
// While claims are slow they do not get smaller than this.
constexpr std::size_t kSmallBatch = 10;
// Of a log of which everything was refused so far, while there are others: each event is stored by
// itself. A claim from a table looks at its backlog anew, so it does not get smaller.
constexpr std::size_t kRefusedEvents = 50;
// Before the next of those batches, while the one before has no results.
constexpr milliseconds kFirstPatience(200);
// The same for a probe, which may have met a connection that is lost.
constexpr milliseconds kProbePatience = seconds(5);
// So many refused events in a row, and the lane is no longer sure of its topic.
constexpr std::size_t kManyRefused = 100;

// A step may take so long, and twice as long after each that was cancelled for it, since it may be
// the outbox that is slow and not its owner: more often when there is nobody to hold up. When
// somebody waits for the worker to leave it is less.
constexpr milliseconds kStepTime = seconds(1);
constexpr int kMostDoublings = 3;
constexpr int kMostDoublingsAlone = 6;
constexpr milliseconds kLastStepTime(500);
// What is on its way when a publication is altered. A broker that does not answer is left behind.
constexpr milliseconds kFinishTime = seconds(5);

// A step that took longer than this, and this for each event in it, is followed by a pause.
constexpr milliseconds kLongStep(100);
constexpr std::chrono::microseconds kLongEvent(100);
// The first long step in so much time may have nothing to do with the outbox: the machine had a
// hiccup, or was stopped for a while. Its pause is no longer than that of one that is cancelled.
constexpr milliseconds kLongStepsApart = kPauseFactor * kStepTime * (1 << kMostDoublings);
constexpr milliseconds kLongestFirstPause = kPauseFactor * kStepTime;
// So much delay is forgiven: at most in all, and in proportion to the time that passes.
constexpr milliseconds kGrace(500);
constexpr int kGraceOf = 20;
// One that took longer than this, and kLongEvent for each event in it, is followed by a rest.
constexpr milliseconds kShortStep(5);

pubsub::BackoffPolicy ScaledBackoff(const pubsub::BackoffPolicy& policy) {
  return {Scaled(policy.base), policy.factor, Scaled(policy.cap)};
}

milliseconds Between(TimestampTz begin, TimestampTz end) {
  return milliseconds((end - begin) / 1000);
}

// Leases must not end meanwhile.
milliseconds LongestPause() { return LeaseTime() / 4; }

// For the log and postbox.publication_status: what is wrong, and the repair.
std::string Reason(const PostgresError& error) {
  return Shortened(error.hint.empty() ? error.message : error.message + " (" + error.hint + ")",
                   kMaxReason);
}

std::size_t Published(std::span<const EventPointer> events) {
  return static_cast<std::size_t>(
      std::count_if(events.begin(), events.end(), [](const EventPointer& event) {
        return event->status == pubsub::PublishStatus::kPublished;
      }));
}

}  // namespace

Lane::Lane(Publication publication, std::string topic, std::string trouble,
           std::unique_ptr<OutboxSource> source, std::shared_ptr<Holding> holding)
    : publication_(std::move(publication)),
      topic_(std::move(topic)),
      trouble_(std::move(trouble)),
      source_(std::move(source)),
      holding_(std::move(holding)) {}

void Lane::WantNow() {
  retry_at_ = 0;
  wanted_ = true;
}

milliseconds Lane::StepTime(int too_long) const {
  if (StopRequested()) return Scaled(kLastStepTime);
  return Scaled(kStepTime) *
         (1 << std::min(too_long, crowded_ ? kMostDoublings : kMostDoublingsAlone));
}

std::size_t Lane::BatchSize() const {
  if (!proven_) {
    const bool few = publication_.is_log() && crowded_ && refused_in_row_ > 0;
    return few ? kRefusedEvents : kFirstEvents;
  }
  const int most = publication_.is_log() ? settings().read_chunk_size : settings().claim_batch_size;
  return std::min(static_cast<std::size_t>(most), batch_size_);
}

bool Lane::TryLock() const {
  const LOCKMODE mode = publication_.is_log() ? AccessShareLock : RowExclusiveLock;
  return Pg([&] { return ConditionalLockRelationOid(publication_.outbox, mode); });
}

bool Lane::Claim(TimestampTz now, const Budget& budget, Events* events, XLogRecPtr* durable_at) {
  ClaimLimits limits{};
  if (!budget.Room(BatchSize(), *holding_, source_->KeepsRoom(), &limits)) return false;
  if (limits.first < needed_) return false;
  if (!trouble_.empty()) {
    Fail(now, trouble_);
    return false;
  }
  ClaimResult claim;
  Suspension suspension;
  bool locked = false, claims = false;  // claims: what the source hands out is not on its way yet
  const TimestampTz begin = GetCurrentTimestamp();
  has_plans_ = true;
  try {
    Transaction transaction("postbox: claiming events");
    transaction.Limit(publication_.outbox, StepTime(too_long_));
    transaction.Run([&] {
      transaction.Begin();
      suspension = ReadSuspension(publication_.name);
      if (!suspension.publication_exists || suspension.retry_at != 0) return;
      locked = !TryLock();
      if (locked) return;
      suspended_since_ = suspension.since;
      if (suspension.attempts > 0) limits.events = std::min(limits.events, ProbeSize(now));
      claims = true;
      claim = source_->Claim(limits, &transaction);
    });
  } catch (const PostgresError& error) {
    ChargeFailure(begin);
    batch_size_ = std::max(kSmallBatch, BatchSize() / 2);
    if (claims) source_->RollBack(Reason(error));
    Fail(now, error);
    return false;
  }
  ChargeClaim(begin, claim.events.size());
  if (locked) {
    Passing(now, "the outbox is locked");
    return false;
  }
  attempts_ = suspension.attempts;
  if (attempts_ == 0) try_ = Try::kOne;
  retry_at_ = suspension.retry_at;
  if (retry_at_ == 0) {
    failed_ = false;
    too_long_ = std::max(too_long_ - 1, 0);
    passing_since_ = 0;
  }
  // A suspended lane is wanted, too, and one whose next event waits until others are settled.
  needed_ = claim.needed;
  wanted_ = claim.more || !claim.events.empty() || retry_at_ != 0 || needed_ > 0;
  if (!claim.events.empty()) Failpoint("after_claim");
  if (!claim.events.empty()) event_at_ = now;
  outstanding_ += claim.events.size();
  next_unproven_ = TimestampTzPlusMilliseconds(
      now, (attempts_ > 0 ? Scaled(kProbePatience) : kFirstPatience).count());
  *events = std::move(claim.events);
  *durable_at = claim.durable_at != 0 ? claim.durable_at : XactLastCommitEnd;
  return wanted_ && retry_at_ == 0 && needed_ == 0;
}

bool Lane::Charge(TimestampTz begin, std::size_t events, milliseconds free) {
  if (!crowded_) return false;
  const TimestampTz end = GetCurrentTimestamp();
  const auto needed =
      std::chrono::duration_cast<milliseconds>(kLongEvent * static_cast<int64>(events));
  const milliseconds more = Between(begin, end) - needed;
  if (more > free) {
    rest_until_ =
        TimestampTzPlusMilliseconds(end, std::min(kPauseFactor * more, LongestPause()).count());
  }
  return more > Scaled(kLongStep) && PauseFor(end, Forgive(end, more - Scaled(kLongStep)));
}

void Lane::ChargeFailure(TimestampTz begin) {
  const TimestampTz end = GetCurrentTimestamp();
  PauseFor(end, Between(begin, end) - Scaled(kLongStep));
}

bool Lane::PauseFor(TimestampTz now, milliseconds over) {
  if (over.count() <= 0) return false;
  const bool first = Between(long_step_at_, now) > Scaled(kLongStepsApart);
  long_step_at_ = now;
  const milliseconds longest =
      first ? std::min(Scaled(kLongestFirstPause), LongestPause()) : LongestPause();
  pause_until_ = TimestampTzPlusMilliseconds(now, std::min(kPauseFactor * over, longest).count());
  return true;
}

milliseconds Lane::Forgive(TimestampTz now, milliseconds delay) {
  grace_ = std::min(Scaled(kGrace), grace_ + Between(grace_at_, now) / kGraceOf);
  grace_at_ = now;
  const milliseconds forgiven = std::min(grace_, delay);
  grace_ -= forgiven;
  return delay - forgiven;
}

void Lane::ChargeClaim(TimestampTz begin, std::size_t events) {
  if (Charge(begin, events, kShortStep)) {
    // A claim that is slow because of what it reads becomes faster so.
    batch_size_ = std::max(kSmallBatch, BatchSize() / 2);
  } else if (batch_size_ < kFirstEvents * 1000) {
    batch_size_ *= 2;
  }
}

void Lane::FreePlans() {
  source_->ForgetPlans();
  has_plans_ = false;
}

// Results.

Lane::Summary Lane::Summarize() const {
  using pubsub::PublishStatus;
  Summary summary;
  summary.published = Published(unsettled_);
  for (const EventPointer& event : unsettled_) {
    if (event->leaving) continue;
    const bool unreachable = event->status == PublishStatus::kUnreachable;
    if ((unreachable || event->status == PublishStatus::kTopicBroken) && summary.broken.empty()) {
      summary.broken = Shortened(ServerText(event->error), kMaxReason);
      summary.outage = unreachable;
    }
    // A row that cannot be an event was never encoded, and never sent.
    summary.refused += event->status == PublishStatus::kRejected && event->attempts == 0 &&
                       !event->encoded.empty();
  }
  return summary;
}

bool Lane::RefusedThroughout(const Summary& summary) const {
  if (summary.published > 0 || !summary.broken.empty() || summary.refused == 0) return false;
  if (try_ == Try::kRefusing && attempts_ > 0) return true;
  if (proven_) return summary.refused >= kManyRefused;
  return summary.refused > 1 || refused_in_row_ > 1;
}

bool Lane::IsUndecided(const Summary& summary) const {
  return attempts_ > 0 && try_ == Try::kOne && summary.refused == 1 && summary.published == 0 &&
         summary.broken.empty();
}

std::size_t Lane::ProbeSize(TimestampTz now) const {
  const bool batch = try_ == Try::kBatch || (try_ == Try::kRefusing && SettlesEach(now));
  return batch ? BatchSize() : kProbeEvents;
}

bool Lane::SettlesEach(TimestampTz now) const {
  constexpr int kMostDoublings = 32;  // then the backoff does not grow any more
  const int delays = publication_.max_attempts - 1;
  milliseconds patience(0);
  for (int i = 1; i <= std::min(delays, kMostDoublings); ++i) {
    patience += pubsub::BackoffDelay(publication_.backoff, i, 0.5);
  }
  patience += publication_.backoff.cap * std::max(delays - kMostDoublings, 0);
  if (attempts_ == 0) return delays == 0;
  return Between(suspended_since_, now) >= patience;
}

pubsub::BackoffPolicy Lane::TopicBackoff() const {
  const pubsub::BackoffPolicy most = ScaledBackoff(kTopicBackoff);
  return {std::min(most.base, publication_.backoff.base), most.factor,
          std::min(most.cap, publication_.backoff.cap)};
}

void Lane::GiveBackRefused() {
  using pubsub::PublishStatus;
  for (const EventPointer& event : unsettled_) {
    if (event->status != PublishStatus::kRejected || event->encoded.empty()) continue;
    event->status = PublishStatus::kTopicBroken;
  }
}

void Lane::BlameTopic(TimestampTz now, Summary* summary) {
  using pubsub::PublishStatus;
  summary->settled_each = SettlesEach(now);
  if (summary->settled_each) return;
  const auto refused =
      std::find_if(unsettled_.begin(), unsettled_.end(), [](const EventPointer& event) {
        return event->status == PublishStatus::kRejected && !event->encoded.empty();
      });
  summary->broken =
      "every event of a batch was refused: " + Shortened(ServerText((*refused)->error), kMaxReason);
  summary->refusing = true;
  GiveBackRefused();
}

void Lane::Remember(TimestampTz now, const Summary& summary) {
  if (summary.published > 0) {
    try_ = Try::kOne;
    holding_->published_at = now;
    proven_ = holding_->proven = true;
    refused_in_row_ = 0;
  } else {
    refused_in_row_ += summary.refused;
    if (refused_in_row_ >= kManyRefused) proven_ = holding_->proven = false;
  }
  if (!summary.broken.empty()) {
    try_ = summary.refusing ? Try::kRefusing : Try::kOne;
    if (!summary.outage) Log(summary.broken);
  } else if ((summary.published > 0 || summary.settled_each) && !summary.lost) {
    attempts_ = 0;
  } else if (attempts_ > 0 && summary.refused == 0) {
    // Behind a message of their key that was given up and is still on its way, perhaps for long.
    retry_at_ = std::max(retry_at_, TimestampTzPlusMilliseconds(now, kFirstPatience.count()));
  }
}

bool Lane::Decide(TimestampTz now, bool leaving) {
  Summary summary = Summarize();
  waits_for_rest_ =
      !leaving && !proven_ && outstanding_ > 0 && summary.refused > 0 && summary.published == 0;
  if (waits_for_rest_) return false;
  summary.undecided = !leaving && IsUndecided(summary);
  if (summary.undecided) {
    GiveBackRefused();
  } else if (!leaving && RefusedThroughout(summary)) {
    BlameTopic(now, &summary);
  }
  settling_says_ = std::move(summary);
  settling_ = std::move(unsettled_);
  unsettled_.clear();
  settling_since_ = now;
  return true;
}

void Lane::HurryUp(TimestampTz begin) {
  const TimestampTz end = GetCurrentTimestamp();
  const milliseconds since = Between(settling_since_, end);
  if (since < LongestPause() || since > 3 * LongestPause()) return;
  pause_until_ = std::min(pause_until_, end + (end - begin));
}

Lane::Settled Lane::Settle(TimestampTz now, bool leaving, Budget* budget) {
  const TimestampTz at = std::max(settle_at_, PauseUntil());
  if (at > now && !leaving && finish_by_ <= now) return Settled::kNothing;
  leaving = leaving || finish_by_ != 0;
  if (settling_.empty() && !Decide(now, leaving)) return Settled::kNothing;
  const std::size_t size = std::min(settling_.size(), settle_size_);
  const auto part = std::span<const EventPointer>(settling_).first(size);
  if (!Store(now, part, leaving)) return Settled::kNothing;
  std::size_t bytes = 0;
  for (const EventPointer& event : part) bytes += event->bytes();
  budget->Settled(size, bytes, holding_.get());
  settling_.erase(settling_.begin(), settling_.begin() + static_cast<std::ptrdiff_t>(size));
  settle_failures_ = 0;
  settle_at_ = 0;
  passing_since_ = 0;
  if (!settling_.empty()) return Settled::kPart;
  if (!leaving) Failpoint("after_mark");
  Remember(now, settling_says_);
  if (settling_says_.undecided) try_ = Try::kBatch;
  return unsettled_.empty() ? Settled::kAll : Settled::kPart;
}

bool Lane::Store(TimestampTz now, std::span<const EventPointer> part, bool leaving) {
  Summary& says = settling_says_;
  const bool last = part.size() == settling_.size();
  TimestampTz retry_at = 0;
  bool ended = false;
  const TimestampTz begin = GetCurrentTimestamp();
  try {
    // A crash that loses this commit makes events leave twice, which is allowed. Waiting for the
    // disk here would cost more than it saves.
    Transaction transaction("postbox: storing the results of publishing", Durability::kSoon);
    transaction.Limit(publication_.outbox, StepTime(settled_too_long_));
    transaction.Run([&] {
      says.lost = !source_->Settle(part, &transaction) || says.lost;
      if (!last) return;
      if (!says.broken.empty() && !leaving) {
        transaction.Begin();
        retry_at = Suspend(publication_, says.broken,
                           says.outage ? ScaledBackoff(kOutageBackoff) : TopicBackoff());
      } else if ((says.published > 0 || says.settled_each) && !says.lost && attempts_ > 0) {
        transaction.Begin();
        ended = EndSuspension(publication_);
      }
    });
  } catch (const PostgresError& error) {
    ChargeFailure(begin);
    source_->RollBack(Reason(error));
    ++settle_failures_;
    const auto delay =
        pubsub::BackoffDelay(ScaledBackoff(IsPassing(error) ? kLockBackoff : kErrorBackoff),
                             settle_failures_, pubsub::JitterRandom());
    settle_at_ = TimestampTzPlusMilliseconds(now, delay.count());
    if (!IsPassing(error)) settle_size_ = std::max(part.size() / 2, std::size_t{1});
    if (!leaving) FailStatement(now, error, &settled_too_long_);
    return false;
  }
  if (!says.lost) {
    settled_too_long_ = std::max(settled_too_long_ - 1, 0);
    const bool quick = Between(begin, GetCurrentTimestamp()) < Scaled(kStepTime) / 4;
    if (quick && part.size() >= settle_size_) {
      settle_size_ = std::min(settle_size_ * 2, kMostSettled);
    }
  }
  const bool in_vain = says.refused > 0 && says.published == 0;
  Charge(begin, Published(part), in_vain ? milliseconds(0) : kShortStep);
  HurryUp(begin);
  if (!last) return true;
  if (retry_at == 0) says.broken.clear();
  retry_at_ = std::max(retry_at_, retry_at);
  if (ended) {
    // The other lanes do not wait for the end of the suspension that they know of.
    Pg([] {
      RaiseConfigGeneration();
      WakePublishers(MyDatabaseId);
    });
  }
  return true;
}

void Lane::Maintain(TimestampTz now, bool leaving) {
  if (!leaving) {
    // What is stored in parts may have many pauses.
    const bool pauses = PauseUntil() > now && settling_.empty();
    if (pauses || source_->MaintainIn().count() > 0) return;
    // What failed would fail again, perhaps after waiting for a lock.
    if (failed_ && retry_at_ > now) return;
    Failpoint("before_checkpoint");
  }
  const TimestampTz begin = GetCurrentTimestamp();
  try {
    Transaction transaction("postbox: maintaining an outbox");
    transaction.Limit(publication_.outbox, StepTime(too_long_));
    transaction.Run([&] { source_->Maintain(leaving, &transaction); });
  } catch (const PostgresError& error) {
    ChargeFailure(begin);
    source_->RollBack(Reason(error));
    Fail(now, error);
    return;
  }
  Charge(begin, 0, kShortStep);
  if (!leaving) Failpoint("after_checkpoint");
}

void Lane::Finish(TimestampTz now, const Publication& successor) {
  if (finish_by_ != 0) return;
  const bool same = successor.credential == publication_.credential;
  const milliseconds longest =
      Scaled(kFinishTime) + (same ? seconds(0) : seconds(PublishTimeout()));
  finish_by_ = TimestampTzPlusMilliseconds(now, longest.count());
}

void Lane::Conclude(TimestampTz now, bool give_up) {
  if (!give_up) {
    Maintain(now, true);
    return;
  }
  try {
    // If a crash loses this commit, the lane is that of a worker that is gone.
    Transaction transaction("postbox: giving up a lane", Durability::kSoon);
    transaction.Limit(publication_.outbox, StepTime(too_long_));
    transaction.Run([&] { source_->GiveUp(&transaction); });
  } catch (const PostgresError& error) {
    source_->RollBack(Reason(error));
    Fail(now, error);
  }
}

TimestampTz Lane::NextWork(TimestampTz now) const {
  if (failed_ && retry_at_ > now) return std::max(retry_at_, PauseUntil());
  TimestampTz next = TimestampTzPlusMilliseconds(now, source_->MaintainIn().count());
  const TimestampTz claim_at = std::max(ClaimAt(), rest_until_);
  if (wanted_ && claim_at > now) next = std::min(next, claim_at);
  return std::max(next, PauseUntil());
}

// Failures.

void Lane::Fail(TimestampTz now, const PostgresError& error) {
  failed_ = true;
  FailStatement(now, error, &too_long_);
}

void Lane::FailStatement(TimestampTz now, const PostgresError& error, int* too_long) {
  if (IsPassing(error)) {
    Passing(now, Reason(error));
  } else {
    if (error.sqlstate == ERRCODE_QUERY_CANCELED) ++*too_long;
    SuspendWith(now, Reason(error), ScaledBackoff(kErrorBackoff));
  }
}

void Lane::Passing(TimestampTz now, const std::string& reason) {
  wanted_ = true;
  if (passing_since_ == 0) passing_since_ = now;
  retry_at_ = TimestampTzPlusMilliseconds(now, kLockRetry.count());
  if (Between(passing_since_, now) < Scaled(kLockPatience)) return;
  std::string holders;
  try {
    InTransaction("postbox: looking for who has locked an outbox",
                  [&] { holders = LockHolders(publication_.outbox); });
  } catch (const PostgresError&) {
    // The reason without the name of the process is still one.
  }
  SuspendWith(now, holders.empty() ? reason : "the outbox is locked by process " + holders,
              ScaledBackoff(kLockBackoff));
}

void Lane::Fail(TimestampTz now, const std::string& error) {
  SuspendWith(now, error, ScaledBackoff(kErrorBackoff));
}

void Lane::FailSuspect(TimestampTz now) {
  failed_ = true;
  SuspendWith(now,
              "a statement on the outbox took too long or too much memory, could not be cancelled, "
              "and ended a worker",
              ScaledBackoff(kSuspectBackoff));
}

void Lane::SuspendWith(TimestampTz now, const std::string& error,
                       const pubsub::BackoffPolicy& backoff) {
  // What is cut short because the worker leaves says nothing about the outbox.
  if (StopRequested()) return;
  Log(error);
  wanted_ = true;
  attempts_ = std::max(attempts_, 1);
  retry_at_ = TimestampTzPlusMilliseconds(now, backoff.base.count());
  try {
    InTransaction("postbox: suspending a publication", [&] {
      retry_at_ = std::max(retry_at_, Suspend(publication_, error, backoff, PauseUntil()));
    });
  } catch (const PostgresError& second) {
    const std::string message = "could not store that publication \"" + publication_.name +
                                "\" is suspended: " + second.message;
    LogLimited(SubjectOf(message), {.message = message});
  }
}

void Lane::Log(const std::string& error) {
  LeaveIfExtensionGone();
  const std::string message = "publication \"" + publication_.name + "\" is suspended: " + error;
  LogLimited(SubjectOf(message), {.level = WARNING, .message = message});
}

std::vector<LanePointer> MakeLanes(const Publication& publication, const std::string& topic) {
  std::string trouble;
  if (!pubsub::IsFullResourceName(publication.topic)) {
    trouble = pubsub::CheckProjectId(settings().project_id);
  }
  if (!trouble.empty()) trouble += "; set postbox.project_id";
  const auto holding = std::make_shared<Holding>();
  std::vector<LanePointer> lanes;
  for (auto& source : MakeSources(publication, topic, identity().lock_token)) {
    lanes.push_back(
        std::make_shared<Lane>(publication, topic, trouble, std::move(source), holding));
  }
  return lanes;
}

}  // namespace postbox::publisher
