#include "worker/publisher/lane.h"

#include "proto/rules/resource_name.h"
#include "worker/publisher/base/failpoint.h"
#include "worker/publisher/base/registration.h"
#include "worker/publisher/delivery/publish_timeout.h"
#include "worker/publisher/make_sources.h"
#include "worker/publisher/scale.h"
#include "worker/publisher/store/publication_state.h"

extern "C" {
#include <storage/lmgr.h>
}

namespace postbox::publisher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// While claims are slow they do not get smaller than the first. The second is more than a setting
// allows.
constexpr std::size_t kSmallBatch = 10, kLargestBatch = 1'000'000;
// What is on its way when a publication is altered. A broker that does not answer is left behind.
constexpr milliseconds kFinishTime = seconds(5);

}  // namespace

Lane::Lane(Publication publication, std::string topic, std::string configuration_error,
           std::unique_ptr<OutboxSource> source, std::shared_ptr<Tenant> tenant)
    : publication_(std::move(publication)),
      topic_(std::move(topic)),
      configuration_error_(std::move(configuration_error)),
      source_(std::move(source)),
      tenant_(std::move(tenant)),
      failures_(&publication_, tenant_),
      results_(&publication_, source_.get(), &failures_, tenant_),
      meter_(publication_.name, topic_),
      claim_size_(kSmallBatch, kLargestBatch) {}

void Lane::ClearBackoff() {
  failures_.topic().TryNow();
  ready_ = true;
}

std::optional<ReadMark> Lane::ReadUpTo() const {
  const SuspensionPolicy& topic = failures_.topic();
  return topic.failing() || topic.retry_at() != 0 || needed_ > 0 ? std::nullopt
                                                                 : source_->ReadUpTo();
}

std::size_t Lane::BatchSize() const {
  const ClaimWay way = source_->way();
  if (!failures_.topic().has_published()) {
    return failures_.topic().FirstEvents(way.may_be_small && tenant_->shares_worker);
  }
  return std::min(static_cast<std::size_t>(way.most_events), claim_size_.value());
}

std::optional<Lane::Claimed> Lane::ReadEvents(Moment now, ClaimLimits limits) {
  Claimed claimed;
  bool claims = false;  // what the source hands out is not on its way yet
  const Moment begin = GetCurrentTimestamp();
  try {
    Transaction transaction("postbox: claiming events");
    transaction.Limit(publication_.outbox, tenant_->TimeOf(limit_));
    transaction.Run([&] {
      transaction.Begin();
      const Suspension suspension = ReadSuspension(publication_.name);
      failures_.topic().Read(suspension.attempts, suspension.retry_at, suspension.since);
      claimed.suspended = !suspension.publication_exists || suspension.retry_at != 0;
      if (claimed.suspended) return;
      claimed.locked =
          !Pg([&] { return ConditionalLockRelationOid(publication_.outbox, source_->way().lock); });
      if (claimed.locked) return;
      limits.events = failures_.topic().Most(now, limits.events);
      claims = true;
      claimed.result = source_->Claim(limits, &transaction);
    });
  } catch (const PostgresError& error) {
    tenant_->ChargeFailure(begin, limit_);
    claim_size_.Shrink(BatchSize());
    if (claims) source_->RollBack(Reason(error));
    failures_.FailTurn(now, error, &limit_);
    return std::nullopt;
  }
  // A claim that is slow because of what it reads becomes faster with a smaller batch.
  if (tenant_->Charge(begin, claimed.result.events.size(), limit_)) {
    claim_size_.Shrink(BatchSize());
  } else {
    claim_size_.Grow();
  }
  return claimed;
}

bool Lane::Claim(Moment now, const Budget& budget, Events* events, XLogRecPtr* durable_at) {
  ClaimLimits limits{};
  if (!budget.Room(BatchSize(), *tenant_, source_->way().keeps_room, &limits)) return false;
  if (limits.first < needed_) return false;
  if (!configuration_error_.empty()) {
    failures_.Suspend(now, configuration_error_);
    return false;
  }
  has_plans_ = true;
  std::optional<Claimed> claimed = ReadEvents(now, limits);
  if (!claimed) return false;
  if (claimed->locked) {
    failures_.Pass(now, "the outbox is locked");
    return false;
  }
  if (!claimed->suspended) {
    limit_.Ended();
    failures_.Recover();
  }
  ClaimResult& claim = claimed->result;
  // So is one whose next event waits until others are settled.
  needed_ = claim.needed;
  ready_ = claim.more || !claim.events.empty() || needed_ > 0;
  if (!claim.events.empty()) {
    Failpoint("after_claim");
    event_at_ = now;
    const std::uint16_t meter = meter_.Number();
    for (const EventPointer& event : claim.events) event->meter = meter;
  }
  results_.Expect(claim.events.size());
  failures_.topic().Claimed(now, Scale());
  *events = std::move(claim.events);
  *durable_at = claim.durable_at != 0 ? claim.durable_at : XactLastCommitEnd;
  return ready_ && !claimed->suspended && needed_ == 0;
}

void Lane::FreePlans() {
  source_->ForgetPlans();
  has_plans_ = false;
}

void Lane::Maintain(Moment now, bool leaving) {
  if (!leaving) {
    // What is stored in parts may have many pauses.
    const bool pauses = tenant_->WaitsUntil() > now && !results_.InParts();
    if (pauses || source_->MaintainIn().count() > 0) return;
    // What failed would fail again, perhaps after waiting for a lock.
    if (failures_.StatementFailed(now)) return;
    Failpoint("before_checkpoint");
  }
  const Moment begin = GetCurrentTimestamp();
  try {
    Transaction transaction("postbox: maintaining an outbox");
    transaction.Limit(publication_.outbox, tenant_->TimeOf(limit_));
    transaction.Run([&] { source_->Maintain(leaving, &transaction); });
    if (transaction.committed()) AnnouncePublished();
  } catch (const PostgresError& error) {
    tenant_->ChargeFailure(begin, limit_);
    source_->RollBack(Reason(error));
    failures_.FailTurn(now, error, &limit_);
    return;
  }
  tenant_->Charge(begin, 0, limit_);
  if (!leaving) Failpoint("after_checkpoint");
}

void Lane::Finish(Moment now, const Publication& successor) {
  const bool same = successor.credential == publication_.credential;
  results_.Finish(After(now, Scale()(kFinishTime) + seconds(same ? 0 : PublishTimeout())));
}

void Lane::Conclude(Moment now, bool give_up) {
  if (!give_up) {
    Maintain(now, true);
    return;
  }
  try {
    // If a crash loses this commit, the lane is that of a worker that is gone.
    Transaction transaction("postbox: releasing a lane", Durability::kSoon);
    transaction.Limit(publication_.outbox, tenant_->TimeOf(limit_));
    transaction.Run([&] { source_->GiveUp(&transaction); });
  } catch (const PostgresError& error) {
    source_->RollBack(Reason(error));
    failures_.FailTurn(now, error, &limit_);
  }
}

Moment Lane::NextWork(Moment now) const {
  if (failures_.StatementFailed(now)) {
    return std::max(failures_.topic().retry_at(), tenant_->WaitsUntil());
  }
  Moment next = After(now, source_->MaintainIn());
  const Moment claim_at = std::max(ClaimAt(), tenant_->account.rests_until());
  if (IsReady() && claim_at > now) next = std::min(next, claim_at);
  return std::max(next, tenant_->WaitsUntil());
}

std::vector<LanePointer> MakeLanes(const Publication& publication, const std::string& topic) {
  std::string configuration_error;
  if (!pubsub::IsFullResourceName(publication.topic)) {
    configuration_error = pubsub::CheckProjectId(settings().project_id);
  }
  if (!configuration_error.empty()) configuration_error += "; set postbox.project_id";
  const auto tenant = std::make_shared<Tenant>();
  std::vector<LanePointer> lanes;
  for (auto& source : MakeSources(publication, topic, identity().lock_token)) {
    lanes.push_back(
        std::make_shared<Lane>(publication, topic, configuration_error, std::move(source), tenant));
  }
  return lanes;
}

}  // namespace postbox::publisher
