// See worker.h.
#include "worker/publisher/worker.h"

#include "extension/shared/settings.h"
#include "extension/shared/time_scale.h"
#include "proto/rules/resource_name.h"
#include "worker/publisher/base/failpoint.h"
#include "worker/publisher/base/limited_log.h"
#include "worker/publisher/base/registration.h"
#include "worker/publisher/base/server_text.h"
#include "worker/publisher/base/standby.h"
#include "worker/publisher/base/time_after.h"
#include "worker/publisher/kept_plans.h"
#include "worker/publisher/terminate.h"

extern "C" {
#include <postmaster/interrupt.h>
}

namespace postbox::publisher {
namespace {

// SIGTERM: so long for what is on its way, then so long for the cancelled.
constexpr std::chrono::milliseconds kFinishTime(1000), kCancelTime(2000);
// Another database needs the slot: so long for what is on its way.
constexpr int64 kYieldMs = 10'000;
constexpr int64 kFinishStepMs = 200;
// When so much time is over, what is left is not stored any more. The server waits for this process
// to leave; leases that are not given back are taken over.
constexpr int64 kLeaveMs = 4000;
constexpr int64 kCredentialsLookMs = 1000;
// A publication of which an event has gone through within this time is busy.
constexpr int64 kRecentlyMs = 100;
constexpr long kReportCountsMs = 100;  // until the statistics have an idle worker's last counts

// When a line of the log that was held back is due.
TimestampTz NextLine(TimestampTz now) {
  const auto due = NextDueLine();
  if (due == decltype(due)::max()) return DT_NOEND;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(due - RepeatLimit::Clock::now());
  return After(now, std::max<int64>(left.count(), 0));
}

}  // namespace

Worker::Worker() : outlets_(wait_point_.notify_fd()) { traces_.FollowSettings(); }

void Worker::Run() {
  while (!StopRequested() && !YieldRequested()) {
    LeaveIfThreadDied();
    // Between transactions there is nothing to cancel.
    QueryCancelPending = 0;
    Pg([] { CHECK_FOR_INTERRUPTS(); });
    FollowSettings();
    WriteDueLines();
    const bool progress = Step();
    reports_.ShowWork(!budget_.empty(), progress);
    if (!progress) Wait();
  }
  LeaveIfThreadDied();
  const bool work_left = WorkLeft();
  Finish();
  Drain();
  traces_.Stop();
  WriteAllLines();
  Pg([work_left] { Leave(work_left); });
  pg_unreachable();
}

bool Worker::Step() {
  now_ = GetCurrentTimestamp();
  Heartbeat();
  // A commit may have come while there was other work. If that waited for a lock, it has taken the
  // latch's state, and only the flag is left.
  if (MyLatch->is_set) ResetLatch(MyLatch);
  WantIn(TakeWakeUp());
  poll_.Look(lanes_, now_);
  FollowCredentials();
  if (configuration_.IsToBeRead(now_)) LoadLanes();
  succession_.TryToDivideAgain(now_);

  bool progress = CollectResults();
  outlets_.HandOver(ConfirmedByStandbys());
  WatchStandbys();
  reports_.Look(outlets_, lanes_, now_);
  traces_.Look();
  if (succession_.Proceed(now_, &lanes_)) ArrangeLanes();
  // First what workers that are gone have left behind; then it can be claimed.
  // Each lane comes first in turn, so that a slow one does not keep the others waiting for ever.
  if (!lanes_.empty()) first_lane_ = (first_lane_ + 1) % lanes_.size();
  for (std::size_t i = 0; i < lanes_.size() && !StopRequested(); ++i) {
    lanes_[(first_lane_ + i) % lanes_.size()]->Maintain(now_, false);
  }
  progress |= ClaimLanes();
  if (identity().ordinal == 0 && !StopRequested()) {
    progress |= upkeep_.retention.Step(now_);
    upkeep_.gauges.Step(now_);
  }
  return progress;
}

// A worker that was away for too long no longer knows whether its lanes are its own.
void Worker::Heartbeat() {
  // Half of the lease leaves time to act.
  if (static_cast<uint64>(RecordHeartbeat().count()) * 2 >= LeaseMilliseconds())
    MarkLeasesUncertain();
}

void Worker::Wait() {
  if (HasWakeUp() || YieldRequested()) return;
  TimestampTz until = std::min({poll_.next(), NextLine(now_), settlements_.NextStep()});
  for (const LanePointer& lane : lanes_) until = std::min(until, lane->NextWork(now_));
  until = std::min({until, succession_.NextStep(now_), configuration_.pause_ends()});
  if (identity().ordinal == 0) {
    until = std::min({until, upkeep_.retention.NextStep(), upkeep_.gauges.NextStep()});
  }
  if (outlets_.UsesCredentials()) until = std::min(until, next_credentials_look_);
  until = std::min({until, outlets_.NextLook(now_), outlets_.NextStep(), reports_.NextLook()});
  // Others must hear of this worker before they take over what it has.
  long timeout = std::min(TimestampDifferenceMilliseconds(GetCurrentTimestamp(), until),
                          static_cast<long>(LeaseMilliseconds() / 4));
  if (Transaction::HasCounts()) timeout = std::min(timeout, kReportCountsMs);
  // Idle: what the last transactions counted goes out now, for autovacuum.
  if (!wait_point_.Sleep(timeout) && Transaction::HasCounts()) Transaction::ReportCounts();
}

// Configuration.

void Worker::FollowSettings() {
  if (!ConfigReloadPending) return;
  ConfigReloadPending = false;
  const uint64 lease = LeaseMilliseconds();
  Pg([] {
    ProcessConfigFile(PGC_SIGHUP);
    (void)TellPublishers();
  });
  // Others may have gone by the shorter one.
  if (LeaseMilliseconds() != lease) MarkLeasesUncertain();
  // The project completes topics, so lanes are made again too.
  configuration_.TryAllAgain();
  poll_.Now();
  traces_.FollowSettings();
  outlets_.FollowSettings(GetCurrentTimestamp());
}

// A key that is replaced takes effect within a second or two, also if the old one was revoked.
void Worker::FollowCredentials() {
  if (now_ < next_credentials_look_) return;
  next_credentials_look_ = After(now_, kCredentialsLookMs);
  configuration_.TryAgainWith(outlets_.FollowFiles(now_));
}

void Worker::RetireOutdated() {
  if (!configuration_.IsOutdated()) return;
  for (const LanePointer& lane : lanes_) lane->Retire("the publications cannot be read");
  lanes_.clear();
}

void Worker::LoadLanes() {
  if (configuration_.HasToWait(now_)) {
    RetireOutdated();
    return;
  }
  if (!Pg([] { return ExtensionExists(); })) {
    Drain();
    Pg([] { LeaveWithoutExtension(); });
  }
  const std::optional<Configuration::Contents> contents = configuration_.Read(now_, outlets_);
  if (!contents) {
    RetireOutdated();
    return;
  }
  outlets_.Use(contents->choices, now_);
  const std::vector<Publication>& publications = contents->publications;
  std::vector<LanePointer> lanes;
  succession_.Begin();
  for (const Publication& publication : publications) {
    const std::string topic = pubsub::TopicName(settings().project_id, publication.topic);
    const std::size_t before = lanes.size();
    for (const LanePointer& lane : lanes_) {
      if (publication.wanted_lanes != 0 ||
          !(lane->publication() == publication && lane->topic() == topic))
        continue;
      lane->ClearBackoff();
      lanes.push_back(lane);
    }
    // A paused one has no lanes: its own finish, and it is read again when the pause is over.
    if (lanes.size() == before && !publication.IsPaused()) succession_.Await(publication, topic);
  }
  for (const LanePointer& lane : lanes_) {
    if (std::find(lanes.begin(), lanes.end(), lane) == lanes.end()) {
      succession_.Finish(lane, publications, now_);
    }
  }
  lanes_ = std::move(lanes);
  succession_.Proceed(now_, &lanes_);
  ArrangeLanes();
  SuspendSuspects();
}

void Worker::ArrangeLanes() {
  std::vector<std::shared_ptr<const Tenant>> tenants;
  std::set<Oid> outboxes;
  for (const LanePointer& lane : lanes_) {
    if (tenants.empty() || tenants.back() != lane->tenant()) tenants.push_back(lane->tenant());
    outboxes.insert(lane->publication().outbox);
  }
  upkeep_.retention.SetPublished(std::move(outboxes));
  const bool shared = tenants.size() + succession_.awaited() > 1;
  budget_.SetTenants(std::move(tenants));
  for (const LanePointer& lane : lanes_) lane->tenant()->shares_worker = shared;
  reports_.ShowError(outlets_, lanes_);
}

void Worker::SuspendSuspects() {
  for (const Oid outbox : TakeSuspects(identity().database)) {
    upkeep_.retention.Avoid(outbox, now_);
    for (const LanePointer& lane : lanes_) {
      if (lane->publication().outbox == outbox) lane->failures().SuspendSuspect(now_);
    }
  }
}

// Claims and results.

bool Worker::ClaimLanes() {
  const bool any = std::any_of(lanes_.begin(), lanes_.end(),
                               [&](const LanePointer& lane) { return lane->WantsToClaim(now_); });
  // What is behind the events that wait is not safe either.
  if (!any || outlets_.Stalled(now_)) return false;
  bool progress = false;
  for (std::size_t i = 0; i < lanes_.size() && !StopRequested(); ++i) {
    const LanePointer lane = lanes_[(first_lane_ + i) % lanes_.size()];
    if (!lane->WantsToClaim(now_)) continue;
    TurnAccount& account = lane->tenant()->account;
    if (account.rests_until() > now_) {
      if (OthersPublish(*lane)) continue;
      account.Forgive();
    }
    Outlet* outlet = outlets_.Of(lane->publication().credential);
    if (outlet == nullptr || outlet->IsEnding()) continue;
    if (!outlet->EnsureClient(now_)) {
      lane->failures().Suspend(now_, outlet->error());
      continue;
    }
    // The lane before may have taken long, and the lease may be another one since then.
    if (ConfigReloadPending) break;
    Heartbeat();
    heap_.Trim();
    Events events;
    XLogRecPtr durable_at = 0;
    const bool had_plans = lane->has_plans();
    progress |= lane->Claim(now_, budget_, &events, &durable_at);
    std::size_t bytes = 0;
    for (const EventPointer& event : events) {
      event->owner = lane;
      bytes += event->bytes();
    }
    budget_.Add(events.size(), bytes, lane->tenant().get());
    const bool any_events = !events.empty();
    const XLogRecPtr confirmed = ConfirmedByStandbys();
    outlet->in_flight()->Add(std::move(events), lane->publication().name,
                             durable_at <= confirmed ? 0 : durable_at, now_);
    if (any_events) Failpoint("before_send");
    outlet->in_flight()->HandOver(outlet->client(), confirmed);
    if (!had_plans) LimitPlans(lanes_, now_);
  }
  reports_.ShowError(outlets_, lanes_);
  return progress;
}

bool Worker::OthersPublish(const Lane& lane) const {
  return std::any_of(lanes_.begin(), lanes_.end(), [&](const LanePointer& other) {
    return other->tenant() != lane.tenant() &&
           now_ < After(other->tenant()->published_at, kRecentlyMs);
  });
}

bool Worker::CollectResults() {
  bool progress = false;
  for (const auto& outlet : outlets_) {
    const bool ending = outlet->IsEnding();
    Events events = outlet->TakeResults(now_);
    if (!events.empty()) Failpoint("after_publish_before_mark");
    ObserveLatency(events);
    progress |= !events.empty() || ending != outlet->IsEnding();
    settlements_.Add(std::move(events), ending);
  }
  return SettleLanes() || progress;
}

bool Worker::SettleLanes() {
  const Settlements::Stored stored = settlements_.Step(now_, &budget_);
  // The publication may have a new lane by now.
  for (const LanePointer& lane : stored.lanes) {
    for (const LanePointer& other : lanes_) {
      if (other->publication().name == lane->publication().name) other->MarkReady();
    }
  }
  return stored.some;
}

// Synchronous standbys.

void Worker::WatchStandbys() {
  if (outlets_.Stalled(now_)) {
    // With as much left of the lease as sending may take, and some more.
    GiveBackUnsafe(static_cast<int64>(LeaseMilliseconds()) * 1000 / 4);
    reports_.ShowStandbyWaits(outlets_);
  } else if (reports_.EndStandbyWaits()) {
    WantIn(WakeSet::All());
  }
}

void Worker::GiveBackUnsafe(int64 most) {
  Events events = outlets_.TakeUnsafe(now_, most);
  for (const EventPointer& event : events) event->status = pubsub::PublishStatus::kBehind;
  settlements_.Add(std::move(events), false);
  SettleLanes();
}

// Leaving.

void Worker::WaitForResults(int64 milliseconds) {
  const TimestampTz deadline = After(GetCurrentTimestamp(), milliseconds);
  while (outlets_.outstanding() > 0) {
    now_ = GetCurrentTimestamp();
    const long left = TimestampDifferenceMilliseconds(now_, deadline);
    if (left <= 0) break;
    if (CollectResults()) continue;
    // Commits go on setting the latch, which does not matter any more.
    ResetLatch(MyLatch);
    wait_point_.Sleep(std::min(left, 100L));
  }
  CollectResults();
}

bool Worker::WorkLeft() const {
  if (HasWakeUp() || !budget_.empty() || succession_.awaited() > 0) return true;
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [&](const LanePointer& lane) { return lane->WantsToClaim(now_); });
}

void Worker::Finish() {
  if (StopRequested()) return;
  outlets_.StopHandOver();
  const TimestampTz deadline = After(GetCurrentTimestamp(), kYieldMs);
  while (!StopRequested() && outlets_.outstanding() > 0 && GetCurrentTimestamp() < deadline) {
    WaitForResults(kFinishStepMs);
    Heartbeat();
  }
}

void Worker::Drain() {
  // Nothing is read any more from here on, so this is not too early to ask.
  RetireOutdated();
  outlets_.StopHandOver();
  settlements_.LeaveBy(After(GetCurrentTimestamp(), kLeaveMs));
  WaitForResults(Scaled(kFinishTime).count());
  settlements_.StopCounting();
  if (outlets_.outstanding() > 0) {
    outlets_.Cancel();
    WaitForResults(Scaled(kCancelTime).count());
  }
  settlements_.Add(outlets_.Close(), false);
  settlements_.Drain(now_, &budget_);
  for (const auto* lanes : {&succession_.finishing(), &std::as_const(lanes_)}) {
    for (const LanePointer& lane : *lanes) {
      if (!settlements_.TooLate()) lane->Conclude(now_, true);
    }
  }
}

}  // namespace postbox::publisher
