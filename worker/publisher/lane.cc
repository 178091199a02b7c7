#include "worker/publisher/lane.h"

#include "extension/shared/settings.h"
#include "proto/rules/resource_name.h"
#include "worker/publisher/base/lane_table.h"
#include "worker/publisher/base/registration.h"
#include "worker/publisher/failpoint.h"
#include "worker/publisher/make_sources.h"

namespace postbox::publisher {
namespace {

// After a statement on the outbox has failed.
constexpr pubsub::BackoffPolicy kErrorBackoff{std::chrono::seconds(1), 2.0,
                                              std::chrono::seconds(60)};
// A publication that failed before is tried with few events.
constexpr std::size_t kProbeEvents = 10;

// For the log and postbox.publication_status: what is wrong, and the repair.
std::string Reason(const PostgresError& error) {
  return error.hint.empty() ? error.message : error.message + " (" + error.hint + ")";
}

}  // namespace

Lane::Lane(Publication publication, std::string topic, std::string trouble,
           std::unique_ptr<OutboxSource> source)
    : publication_(std::move(publication)),
      topic_(std::move(topic)),
      trouble_(std::move(trouble)),
      source_(std::move(source)) {}

void Lane::WantNow() {
  retry_at_ = 0;
  wanted_ = true;
}

bool Lane::Claim(TimestampTz now, const InFlight& in_flight, Events* events) {
  ClaimLimits limits{};
  const int batch =
      publication_.is_log() ? settings().read_chunk_size : settings().claim_batch_size;
  if (!in_flight.Room(batch, &limits)) return false;
  if (!trouble_.empty()) {
    Fail(now, trouble_);
    return false;
  }
  ClaimResult claim;
  Suspension suspension;
  try {
    Transaction transaction("postbox: claiming events");
    transaction.Run([&] {
      transaction.Begin();
      suspension = ReadSuspension(publication_.name);
      if (!suspension.publication_exists || suspension.retry_at != 0) return;
      if (suspension.attempts > 0) limits.events = std::min(limits.events, kProbeEvents);
      claim = source_->Claim(limits, &transaction);
    });
  } catch (const PostgresError& error) {
    RollBack(now, Reason(error));
    return false;
  }
  failed_ = false;
  attempts_ = suspension.attempts;
  retry_at_ = suspension.retry_at;
  // A suspended lane is still wanted, for the time when the suspension is over.
  wanted_ = claim.more || !claim.events.empty() || retry_at_ != 0;
  if (!claim.events.empty()) Failpoint("after_claim");
  *events = std::move(claim.events);
  return wanted_ && retry_at_ == 0;
}

Lane::Summary Lane::Summarize() const {
  using pubsub::PublishStatus;
  Summary summary;
  for (const EventPointer& event : unsettled_) {
    if (event->status == PublishStatus::kTopicBroken) summary.broken = event.get();
    summary.published |= event->status == PublishStatus::kPublished;
    summary.bytes += event->bytes();
  }
  return summary;
}

bool Lane::Settle(TimestampTz now, bool leaving, InFlight* in_flight) {
  if (settle_at_ > now && !leaving) return false;
  const Summary summary = Summarize();
  if (!Store(now, summary, leaving)) return false;
  if (summary.broken != nullptr) LogOnce(summary.broken->error);
  if (summary.broken == nullptr && summary.published) {
    attempts_ = 0;
    logged_error_.clear();
  }
  in_flight->Settled(unsettled_.size(), summary.bytes);
  unsettled_.clear();
  settle_failures_ = 0;
  settle_at_ = 0;
  return true;
}

bool Lane::Store(TimestampTz now, const Summary& summary, bool leaving) {
  TimestampTz retry_at = 0;
  try {
    // A crash that loses this commit makes events leave twice, which is allowed. Waiting for the
    // disk here would cost more than it saves.
    Transaction transaction("postbox: storing the results of publishing", Durability::kSoon);
    transaction.Run([&] {
      source_->Settle(unsettled_, &transaction);
      if (summary.broken != nullptr && !leaving) {
        transaction.Begin();
        retry_at = Suspend(publication_.name, summary.broken->error, publication_.backoff);
      } else if (summary.published && attempts_ > 0) {
        transaction.Begin();
        EndSuspension(publication_.name);
      }
    });
  } catch (const PostgresError& error) {
    source_->RollBack();
    LogOnce(Reason(error));
    ++settle_failures_;
    const auto delay =
        pubsub::BackoffDelay(kErrorBackoff, settle_failures_, pubsub::JitterRandom());
    settle_at_ = TimestampTzPlusMilliseconds(now, delay.count());
    return false;
  }
  retry_at_ = std::max(retry_at_, retry_at);
  return true;
}

void Lane::Maintain(TimestampTz now, bool leaving) {
  if (!leaving) {
    if (source_->MaintainIn().count() > 0) return;
    // What failed would fail again, perhaps after waiting for a lock.
    if (failed_ && retry_at_ > now) return;
  }
  try {
    Transaction transaction("postbox: maintaining an outbox");
    transaction.Run([&] { source_->Maintain(leaving, &transaction); });
  } catch (const PostgresError& error) {
    RollBack(now, Reason(error));
  }
}

TimestampTz Lane::NextWork(TimestampTz now) const {
  if (failed_ && retry_at_ > now) return retry_at_;
  TimestampTz next = TimestampTzPlusMilliseconds(now, source_->MaintainIn().count());
  if (wanted_ && retry_at_ > now) next = std::min(next, retry_at_);
  return next;
}

void Lane::RollBack(TimestampTz now, const std::string& error) {
  source_->RollBack();
  failed_ = true;
  Fail(now, error);
}

void Lane::Fail(TimestampTz now, const std::string& error) {
  LogOnce(error);
  wanted_ = true;
  retry_at_ = TimestampTzPlusMilliseconds(now, kErrorBackoff.base.count());
  try {
    InTransaction("postbox: suspending a publication", [&] {
      retry_at_ = std::max(retry_at_, Suspend(publication_.name, error, kErrorBackoff));
    });
  } catch (const PostgresError& second) {
    Pg([&] {
      ereport(LOG, (errmsg("could not store that publication \"%s\" is suspended: %s",
                           publication_.name.c_str(), second.message.c_str())));
    });
  }
}

void Lane::LogOnce(const std::string& error) {
  if (error == logged_error_) return;
  LeaveIfExtensionGone();
  logged_error_ = error;
  Pg([&] {
    ereport(WARNING, (errmsg("publication \"%s\" is suspended: %s", publication_.name.c_str(),
                             error.c_str())));
  });
}

std::vector<LanePointer> MakeLanes(const Publication& publication, const std::string& topic) {
  std::string trouble;
  if (!pubsub::IsFullResourceName(publication.topic)) {
    trouble = pubsub::CheckProjectId(settings().project_id);
  }
  if (!trouble.empty()) trouble += "; set postbox.project_id";
  std::vector<LanePointer> lanes;
  for (auto& source : MakeSources(publication, topic, identity().lock_token)) {
    lanes.push_back(std::make_shared<Lane>(publication, topic, trouble, std::move(source)));
  }
  return lanes;
}

}  // namespace postbox::publisher
