// See worker.h.
#include "worker/publisher/worker.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "proto/rules/resource_name.h"
#include "worker/publisher/failpoint.h"
#include "worker/publisher/log/log_outbox.h"
#include "worker/publisher/registration.h"
#include "worker/publisher/table/table_outbox.h"
#include "worker/publisher/terminate.h"
#include "worker/publisher/transaction.h"

extern "C" {
#include <postmaster/interrupt.h>
}

namespace postbox::publisher {

namespace {

// A lane whose transaction failed: a lock that was not to be had, a table that somebody altered.
constexpr pubsub::BackoffPolicy kErrorBackoff{std::chrono::seconds(1), 2.0,
                                              std::chrono::seconds(60)};
// How often leases are looked through, at most.
constexpr int64 kTakeOverMs = 5000;
// SIGTERM: so long for what is on its way, then so long for the cancelled.
constexpr int64 kFinishMs = 1000;
constexpr int64 kCancelMs = 2000;
// A lane that failed before is tried with few events.
constexpr std::size_t kProbeEvents = 10;

TimestampTz After(TimestampTz from, int64 milliseconds) {
  return TimestampTzPlusMilliseconds(from, milliseconds);
}

}  // namespace

Worker::Worker() {
  notify_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (notify_fd_ < 0) Throw(ERRCODE_INSUFFICIENT_RESOURCES, "could not create an eventfd");
  Pg([&] {
    wait_set_ = POSTBOX_CREATE_WAIT_EVENT_SET(3);
    AddWaitEventToSet(wait_set_, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, nullptr);
    AddWaitEventToSet(wait_set_, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, nullptr, nullptr);
    AddWaitEventToSet(wait_set_, WL_SOCKET_READABLE, notify_fd_, nullptr, nullptr);
  });
}

void Worker::Run() {
  while (!StopRequested()) {
    LeaveIfThreadDied();
    Pg([] { CHECK_FOR_INTERRUPTS(); });
    FollowSettings();
    if (!Step()) Wait();
  }
  LeaveIfThreadDied();
  Drain();
  Pg([] { Leave(); });
  pg_unreachable();
}

bool Worker::Step() {
  now_ = GetCurrentTimestamp();
  // A commit may have come while there was other work.
  if (MyLatch->is_set) {
    ResetLatch(MyLatch);
    WantAll();
  }
  if (now_ >= next_poll_) {
    next_poll_ = After(now_, settings().poll_interval);
    WantAll();
  }
  if (reload_ || ConfigGeneration() != generation_) LoadLanes();

  bool progress = CollectResults();
  HandOver();
  if (now_ >= next_take_over_) TakeOverLeases();
  progress |= ClaimLanes();
  Checkpoint(false);
  if (identity().ordinal == 0) {
    const int64 mend_ms = static_cast<int64>(settings().maintenance_interval) * 1000;
    if (now_ >= After(last_mend_, mend_ms)) Mend();
    progress |= maintenance_.Step(now_);
  }
  return progress;
}

void Worker::WantAll() {
  for (const LanePointer& lane : lanes_) lane->wanted = true;
}

void Worker::Wait() {
  TimestampTz until = std::min({next_poll_, next_take_over_});
  for (const LanePointer& lane : lanes_) {
    if (lane->wanted && lane->rest_until > now_) until = std::min(until, lane->rest_until);
  }
  for (const LanePointer& lane : to_settle_) until = std::min(until, lane->settle_after);
  for (const LanePointer& lane : lanes_) {
    const auto wait = lane->source->CheckpointIn();
    if (wait) until = std::min(until, After(now_, wait->count()));
  }
  const long timeout = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), until);
  // Idle: what the last transactions counted goes out now, for autovacuum.
  if (!Sleep(timeout)) Pg([] { pgstat_report_stat(true); });
}

bool Worker::Sleep(long milliseconds) {
  ::WaitEvent event;
  const int events = Pg([&] {
    static const uint32 wait_event = ::postbox::WaitEvent("PostboxPublisher");
    return WaitEventSetWait(wait_set_, std::clamp(milliseconds, 1L, 60'000L), &event, 1,
                            wait_event);
  });
  if (events > 0 && (event.events & WL_SOCKET_READABLE) != 0) {
    uint64 count = 0;
    [[maybe_unused]] const ssize_t size = read(notify_fd_, &count, sizeof count);
  }
  return events > 0;
}

// Configuration.

Worker::Connection Worker::CurrentConnection() {
  const Settings& values = settings();
  return {.endpoint = values.endpoint,
          .project_id = values.project_id,
          .quota_project = values.quota_project,
          .channels = values.channels,
          .publish_timeout = PublishTimeout(),
          .max_messages = values.max_outstanding_messages,
          .max_kilobytes = values.max_outstanding_bytes};
}

void Worker::FollowSettings() {
  if (!ConfigReloadPending) return;
  ConfigReloadPending = false;
  Pg([] { ProcessConfigFile(PGC_SIGHUP); });
  // The project completes topics, so lanes are made anew too.
  reload_ = true;
  next_poll_ = 0;
  if (CurrentConnection() == connection_) return;
  // Who rests because of what was wrong before tries again.
  clear_rests_ = true;
  if (publisher_ != nullptr) Drain();
}

void Worker::LoadLanes() {
  if (!reload_ && now_ < next_load_) return;
  // The generation before the configuration: a change in between is seen next time.
  const uint64 generation = ConfigGeneration();
  if (!Pg([] { return ExtensionExists(); })) {
    Drain();
    Pg([] { LeaveWithoutExtension(); });
  }
  std::vector<Publication> publications;
  try {
    InTransaction("postbox: reading publications", [&] {
      if (clear_rests_) ClearLanes();
      publications = LoadPublications();
    });
  } catch (const PostgresError& error) {
    LeaveIfExtensionGone();
    Pg([&] {
      ereport(WARNING, (errmsg("could not read the publications: %s", error.message.c_str())));
    });
    next_load_ = After(now_, 1000);
    reload_ = false;
    return;
  }
  clear_rests_ = false;
  generation_ = generation;
  reload_ = false;
  std::vector<LanePointer> lanes;
  for (const Publication& publication : publications) {
    const std::string topic = pubsub::TopicName(settings().project_id, publication.topic);
    bool known = false;
    for (const LanePointer& old : lanes_) {
      if (!(old->publication == publication) || old->topic != topic) continue;
      // A person may have ended its rest.
      old->rest_until = 0;
      old->wanted = true;
      lanes.push_back(old);
      known = true;
    }
    if (!known) MakeLanes(publication, topic, &lanes);
  }
  // Events of the old lanes that are still out hold their lane until they are settled.
  lanes_ = std::move(lanes);
  next_take_over_ = 0;
}

void Worker::MakeLanes(const Publication& publication, const std::string& topic,
                       std::vector<LanePointer>* lanes) {
  std::string trouble;
  if (!pubsub::IsFullResourceName(publication.topic))
    trouble = pubsub::CheckProjectId(settings().project_id);
  if (!trouble.empty()) trouble += "; set postbox.project_id";
  const bool is_log = publication.kind == "log";
  const auto share = std::make_shared<LaneShare>();
  for (int slice = 0; slice < (is_log ? publication.lanes : 1); ++slice) {
    auto lane = std::make_shared<Lane>();
    lane->publication = publication;
    lane->topic = topic;
    lane->trouble = trouble;
    if (is_log) {
      lane->batch = &Settings::read_chunk_size;
      lane->source =
          std::make_unique<LogOutbox>(publication, slice, share, topic, identity().lock_token);
    } else {
      lane->batch = &Settings::claim_batch_size;
      lane->source = std::make_unique<TableOutbox>(publication, topic, identity().lock_token);
    }
    lanes->push_back(std::move(lane));
  }
}

bool Worker::EnsurePublisher() {
  if (publisher_ != nullptr) return true;
  connection_ = CurrentConnection();
  if (connection_.publish_timeout < settings().publish_timeout) {
    Pg([&] {
      ereport(LOG, (errmsg("postbox.publish_timeout is longer than half of postbox.lease_timeout: "
                           "events are tried for %d s only",
                           connection_.publish_timeout)));
    });
  }
  pubsub::PublisherOptions options;
  std::string error;
  if (pubsub::ParseEndpoint(connection_.endpoint, std::getenv("PUBSUB_EMULATOR_HOST"),
                            &options.endpoint, &error)) {
    options.channels = connection_.channels;
    options.max_outstanding_messages = static_cast<std::size_t>(connection_.max_messages);
    options.max_outstanding_bytes = static_cast<std::size_t>(connection_.max_kilobytes) * 1024;
    options.publish_timeout = std::chrono::seconds(connection_.publish_timeout);
    options.quota_project = connection_.quota_project;
    options.notify_fd = notify_fd_;
    publisher_ = pubsub::Publisher::Create(std::move(options), &error);
  }
  if (publisher_ != nullptr) return true;
  for (const LanePointer& lane : lanes_) {
    if (lane->rest_until <= now_) Fail(lane.get(), error);
  }
  return false;
}

// Results.

bool Worker::CollectResults() {
  bool progress = false;
  if (publisher_ != nullptr) {
    const std::vector<pubsub::OutgoingMessage*> results = publisher_->TakeResults();
    if (!results.empty()) Failpoint("after_publish_before_mark");
    for (std::size_t i = 0; i < results.size(); ++i) {
      // The other thread has just written them.
      constexpr std::size_t kAhead = 8;
      if (i + kAhead < results.size()) {
        const auto* next = static_cast<const ClaimedEvent*>(results[i + kAhead]);
        __builtin_prefetch(next);
        __builtin_prefetch(&next->handle);
      }
      AddResult(TakeInFlight(static_cast<const ClaimedEvent*>(results[i])));
    }
    progress = !results.empty();
  }
  SettleLanes();
  return progress;
}

void Worker::AddInFlight(EventPointer event) {
  if (free_places_.empty()) {
    event->place = in_flight_.size();
    in_flight_.push_back(std::move(event));
    return;
  }
  const std::size_t place = free_places_.back();
  free_places_.pop_back();
  event->place = place;
  in_flight_[place] = std::move(event);
}

EventPointer Worker::TakeInFlight(const ClaimedEvent* event) {
  free_places_.push_back(event->place);
  return std::move(in_flight_[event->place]);
}

void Worker::AddResult(EventPointer event) {
  Lane* lane = static_cast<Lane*>(event->owner.get());
  if (lane->unsettled.empty()) {
    to_settle_.push_back(std::static_pointer_cast<Lane>(event->owner));
  }
  event->leaving = draining_;
  lane->unsettled.push_back(std::move(event));
}

void Worker::SettleLanes() {
  std::vector<LanePointer> lanes = std::move(to_settle_);
  to_settle_.clear();
  for (const LanePointer& lane : lanes) {
    if (lane->settle_after <= now_ || draining_) SettleLane(lane);
    if (!lane->unsettled.empty()) to_settle_.push_back(lane);
  }
}

bool Worker::StoreResults(const LanePointer& lane, const ClaimedEvent* broken, bool published,
                          TimestampTz* rest_until) {
  try {
    InTransaction("postbox: storing the results of publishing", [&] {
      // A crash that loses this commit makes events leave twice, which is allowed; waiting for the
      // disk here would cost more than it saves.
      Pg([] {
        set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL,
                          true, 0, false);
      });
      lane->source->Settle(lane->unsettled);
      if (broken != nullptr && !draining_) {
        *rest_until = RestLane(lane->publication.name, broken->error, lane->publication.backoff);
      } else if (published && lane->attempts > 0) {
        ClearLane(lane->publication.name);
      }
    });
  } catch (const PostgresError& error) {
    lane->source->Forget();
    LogOnce(lane.get(), error.message);
    ++lane->settle_failures;
    lane->settle_after = After(
        now_,
        pubsub::BackoffDelay(kErrorBackoff, lane->settle_failures, pubsub::JitterRandom()).count());
    return false;
  }
  return true;
}

void Worker::SettleLane(const LanePointer& lane) {
  using pubsub::PublishStatus;
  const ClaimedEvent* broken = nullptr;
  bool published = false;
  std::size_t bytes = 0;
  for (const EventPointer& event : lane->unsettled) {
    if (event->status == PublishStatus::kTopicBroken) broken = event.get();
    published |= event->status == PublishStatus::kPublished;
    bytes += event->bytes();
  }
  TimestampTz rest_until = 0;
  // Only what has failed before has something to clear in postbox.lane.
  const bool in_memory = lane->attempts == 0 && lane->source->SettleInMemory(lane->unsettled);
  if (!in_memory && !StoreResults(lane, broken, published, &rest_until)) return;
  if (broken != nullptr) LogOnce(lane.get(), broken->error);
  if (broken == nullptr && published) {
    lane->attempts = 0;
    lane->logged_error.clear();
  }
  lane->rest_until = std::max(lane->rest_until, rest_until);
  bytes_in_flight_ -= bytes;
  lane->unsettled.clear();
  lane->settle_failures = 0;
  lane->settle_after = 0;
  // The publication may have a new lane by now.
  for (const LanePointer& other : lanes_) {
    if (other->publication.name == lane->publication.name) other->wanted = true;
  }
}

// Claims.

bool Worker::Room(int batch_size, ClaimLimits* limits) const {
  const auto max_events = static_cast<std::size_t>(settings().max_outstanding_messages);
  const std::size_t max_bytes = static_cast<std::size_t>(settings().max_outstanding_bytes) * 1024;
  const std::size_t batch = std::min(static_cast<std::size_t>(batch_size), max_events);
  std::size_t events = in_flight_.size() - free_places_.size();
  for (const LanePointer& lane : to_settle_) events += lane->unsettled.size();
  limits->events = batch;
  limits->bytes = max_bytes;
  if (events == 0) return true;
  if (handed_over_ < hand_over_.size() || events >= max_events || bytes_in_flight_ >= max_bytes)
    return false;
  limits->events = std::min(batch, max_events - events);
  limits->bytes = max_bytes - bytes_in_flight_;
  // Not in crumbs: wait until a whole batch fits, or a good part of the budget is free.
  return limits->events >= std::min(batch, std::max(max_events / 4, std::size_t{1})) &&
         limits->bytes * 8 >= max_bytes;
}

bool Worker::ClaimLanes() {
  bool progress = false;
  const bool any = std::any_of(lanes_.begin(), lanes_.end(), [&](const LanePointer& lane) {
    return lane->wanted && lane->rest_until <= now_;
  });
  if (!any || !EnsurePublisher()) return false;
  // Each lane comes first in turn, so that a busy one cannot take all the room for ever.
  first_lane_ = (first_lane_ + 1) % lanes_.size();
  for (std::size_t i = 0; i < lanes_.size() && !StopRequested(); ++i) {
    const LanePointer lane = lanes_[(first_lane_ + i) % lanes_.size()];
    if (!lane->wanted || lane->rest_until > now_ || !lane->unsettled.empty()) continue;
    progress |= ClaimLane(lane);
  }
  return progress;
}

bool Worker::ClaimLane(const LanePointer& lane) {
  ClaimLimits limits{};
  if (!Room(settings().*lane->batch, &limits)) return false;
  if (!lane->trouble.empty()) {
    Fail(lane.get(), lane->trouble);
    return false;
  }
  ClaimResult claim;
  LaneState state;
  try {
    InTransaction("postbox: claiming events", [&] {
      state = ReadLane(lane->publication.name);
      if (!state.exists || state.rest_until != 0) return;
      if (state.attempts > 0) limits.events = std::min(limits.events, kProbeEvents);
      claim = lane->source->Claim(limits);
    });
  } catch (const PostgresError& error) {
    lane->source->Forget();
    Fail(lane.get(), error.message);
    return false;
  }
  lane->attempts = state.attempts;
  lane->rest_until = state.rest_until;
  // A lane at rest is still wanted, for the time when the rest is over.
  lane->wanted = claim.more || !claim.events.empty() || state.rest_until != 0;
  if (!claim.events.empty()) Failpoint("after_claim");
  for (EventPointer& event : claim.events) {
    event->owner = lane;
    bytes_in_flight_ += event->bytes();
    hand_over_.push_back(event.get());
    AddInFlight(std::move(event));
  }
  HandOver();
  return lane->wanted && state.rest_until == 0;
}

void Worker::HandOver() {
  if (handed_over_ < hand_over_.size()) {
    handed_over_ += publisher_->Publish(std::span(hand_over_).subspan(handed_over_));
  }
  if (handed_over_ < hand_over_.size()) return;
  hand_over_.clear();
  handed_over_ = 0;
}

void Worker::TakeOverLeases() {
  const int64 lease_ms = static_cast<int64>(settings().lease_timeout) * 1000;
  next_take_over_ = After(now_, std::min(kTakeOverMs, lease_ms / 4));
  for (const LanePointer& lane : lanes_) {
    if (lane->rest_until > now_) continue;
    try {
      InTransaction("postbox: looking for leases of workers that are gone",
                    [&] { lane->source->TakeOver(); });
    } catch (const PostgresError& error) {
      lane->source->Forget();
      Fail(lane.get(), error.message);
    }
  }
}

void Worker::Mend() {
  last_mend_ = now_;
  for (const LanePointer& lane : lanes_) {
    if (lane->rest_until > now_) continue;
    try {
      InTransaction("postbox: mending", [&] { lane->source->Mend(); });
    } catch (const PostgresError& error) {
      lane->source->Forget();
      Fail(lane.get(), error.message);
    }
  }
}

void Worker::Checkpoint(bool force) {
  for (const LanePointer& lane : lanes_) {
    const auto wait = lane->source->CheckpointIn();
    if (!wait || (!force && wait->count() > 0)) continue;
    try {
      InTransaction("postbox: storing the position", [&] { lane->source->Checkpoint(force); });
    } catch (const PostgresError& error) {
      lane->source->Forget();
      Fail(lane.get(), error.message);
    }
  }
}

// Errors.

// DROP EXTENSION takes the tables away under a worker's hands; that is no error. What was claimed
// is not given back: a new worker takes the leases over, should there ever be one.
void Worker::LeaveIfExtensionGone() {
  Pg([] {
    if (!ExtensionExists()) LeaveWithoutExtension();
  });
}

void Worker::LogOnce(Lane* lane, const std::string& error) {
  if (error == lane->logged_error) return;
  LeaveIfExtensionGone();
  lane->logged_error = error;
  Pg([&] {
    ereport(WARNING, (errmsg("publication \"%s\" rests: %s", lane->publication.name.c_str(),
                             error.c_str())));
  });
}

void Worker::Fail(Lane* lane, const std::string& error) {
  LogOnce(lane, error);
  lane->rest_until = After(now_, kErrorBackoff.base.count());
  lane->wanted = true;
  try {
    InTransaction("postbox: putting a publication to rest", [&] {
      const TimestampTz until = RestLane(lane->publication.name, error, kErrorBackoff);
      lane->rest_until = std::max(lane->rest_until, until);
    });
  } catch (const PostgresError& second) {
    Pg([&] {
      ereport(LOG, (errmsg("could not store that publication \"%s\" rests: %s",
                           lane->publication.name.c_str(), second.message.c_str())));
    });
  }
}

// Leaving.

void Worker::Drain() {
  const auto wait_for_results = [&](int64 milliseconds) {
    const TimestampTz deadline = After(GetCurrentTimestamp(), milliseconds);
    while (publisher_ != nullptr && publisher_->outstanding() > 0) {
      now_ = GetCurrentTimestamp();
      const long left = TimestampDifferenceMilliseconds(now_, deadline);
      if (left <= 0) break;
      if (CollectResults()) continue;
      // Commits go on setting the latch; nobody looks at it now.
      ResetLatch(MyLatch);
      Sleep(std::min(left, 100L));
    }
    CollectResults();
  };
  hand_over_.clear();
  handed_over_ = 0;
  if (StopRequested()) {
    // Somebody waits for us to leave; a lease that cannot be given back is taken over.
    Pg([] { SetConfigOption("lock_timeout", "500ms", PGC_SUSET, PGC_S_OVERRIDE); });
  }
  wait_for_results(kFinishMs);
  if (publisher_ != nullptr && publisher_->outstanding() > 0) {
    draining_ = true;
    publisher_->Cancel();
    wait_for_results(kCancelMs);
  }
  publisher_.reset();
  DropInFlight();
  draining_ = false;
  Checkpoint(true);
}

void Worker::DropInFlight() {
  // Nothing is sent any more, so what has no result can be given back.
  draining_ = true;
  for (EventPointer& event : in_flight_) {
    if (event == nullptr) continue;
    event->status = pubsub::PublishStatus::kBehind;
    AddResult(std::move(event));
  }
  in_flight_.clear();
  free_places_.clear();
  SettleLanes();
}

}  // namespace postbox::publisher
