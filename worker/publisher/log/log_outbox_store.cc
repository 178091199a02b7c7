// What LogOutbox stores of its position, what becomes of memory when a step fails, and repairs.
#include "extension/base/act_as.h"
#include "extension/shared/settings.h"
#include "extension/shared/time_scale.h"
#include "worker/publisher/base/limited_log.h"
#include "worker/publisher/log/log_outbox.h"

namespace postbox::publisher {
namespace {

using std::chrono::milliseconds;

// How far a lane without events may be ahead of its position: who counts the backlog reads that.
constexpr int64 kMostUnstored = 10'000;
// After the keys of a backlog could not be read.
constexpr milliseconds kPauseOfKeys = std::chrono::minutes(5);
constexpr milliseconds kNothingToDo = std::chrono::hours(1);

}  // namespace

void LogOutbox::BeginStep() {
  handed_out_.clear();
  parked_.BeginStep();
  sent_again_.BeginStep();
  stored_before_.reset();
  depends_on_commit_ = false;
}

void LogOutbox::RollBack(const std::string& error) {
  // What comes after a backlog waits for it rather than that the backlog is held up.
  if (std::exchange(reads_keys_, false)) {
    no_keys_until_ = Clock::now() + Scaled(kPauseOfKeys);
    backlog_keys_.reset();
  }
  if (stored_before_) stored_next_ = stored_before_->next;
  if (!progress_ || depends_on_commit_) {
    sent_again_.RollBack();
    BeginAtStored(error, handed_out_.size());
    return;
  }
  for (const LaneProgress::Handle handle : handed_out_) progress_->Fail(handle);
  if (stored_before_) {
    stored_ = std::move(stored_before_->position);
    sent_again_.RollBackStored();
    dirty_ = true;
    backlog_unstored_ = true;
  }
  parked_.RollBack();
}

void LogOutbox::BeginAtStored(const std::string& why, std::size_t unsent) {
  maybe_left_ = true;
  if (!progress_) return;
  // What has failed was not sent, or is counted.
  const auto events =
      static_cast<std::int64_t>(progress_->next() - stored_next_ - unsent - progress_->failed() -
                                progress_->waiting() + parked_.outstanding());
  if (events > 0 && !why.empty()) {
    sent_again_.Add(events);
    const std::string lane = publication_.name + "\": lane " + std::to_string(slice_);
    LogLimited(
        "begins again " + lane,
        {.message = "publication \"" + lane + " begins at its stored position again, up to " +
                    std::to_string(events) + " events are sent again: " + why});
  }
  next_handle_ = progress_->next();
  progress_.reset();
  backlog_keys_.reset();
  backlog_unstored_ = store_backlog_ = false;
  marker_.reset();
  --share_->held;
  parked_.Reset();
}

// Checkpoints and repairs.

// Others judge the age of events by the stored snapshot. If it was taken while transactions were
// running that are older than the last event, it is stored once more when they have ended.
bool LogOutbox::BacklogIsSettled() const {
  return progress_->outstanding(LaneProgress::Part::kMain) == 0 && progress_->failed() == 0;
}

bool LogOutbox::PositionMoved() const {
  const LanePosition& settled = progress_->settled();
  if (dirty_ || settled.from() > stored_.from() + kMostUnstored) return settled != stored_;
  return stored_.main.top().xmin < read_below_ && settled.main.top().xmin >= read_below_;
}

// The retention keeps what some lane has not passed. So one without events stores its position when
// others had some: now and then, and once more when what ran meanwhile has ended.
bool LogOutbox::HasPassedOthers() const {
  const LanePosition& settled = progress_->settled();
  return settled.from() > stored_.from() ||
         (stored_.main.top().xmin < passed_below_ && settled.main.top().xmin >= passed_below_);
}

milliseconds LogOutbox::CheckpointIn() const {
  if (lease_uncertain_) return milliseconds(0);
  const bool moved = PositionMoved() || sent_again_.any();
  if (!moved && !HasPassedOthers()) return kNothingToDo;
  const milliseconds interval(moved ? settings().checkpoint_interval
                                    : settings().maintenance_interval * 1000);
  const auto age = std::chrono::duration_cast<milliseconds>(Clock::now() - stored_at_);
  return std::max(milliseconds(0), interval - age);
}

milliseconds LogOutbox::MaintainIn() const {
  if (!progress_) return kNothingToDo;
  const auto age = std::chrono::duration_cast<milliseconds>(Clock::now() - repaired_at_);
  const milliseconds repair_in = std::chrono::seconds(settings().maintenance_interval) - age;
  if (!share_->log.empty()) return milliseconds(0);
  return std::max(milliseconds(0), std::min(CheckpointIn(), repair_in));
}

void LogOutbox::Maintain(bool leaving, Transaction* transaction) {
  if (!progress_) return;
  BeginStep();
  share_->log.Write();
  if ((leaving && PositionMoved()) || CheckpointIn().count() == 0) {
    transaction->Begin();
    Checkpoint();
    return;
  }
  if (leaving || MaintainIn().count() > 0) return;
  // In a transaction of its own: a failure here does not take a checkpoint back. Another session's
  // UPDATE or DELETE of parked rows may have ended a pause.
  transaction->Begin();
  const ActAs owner(Open());
  if (parked_.Load()) repaired_at_ = Clock::now();
}

void LogOutbox::GiveUp(Transaction* transaction) {
  if (!progress_) return;
  BeginStep();
  share_->log.Write();
  transaction->Begin();
  if (PositionMoved()) Checkpoint();
  if (progress_) GiveUpRow("the lane was given up before all events were published");
}

// `why`: as for BeginAtStored().
void LogOutbox::GiveUpRow(const std::string& why) {
  BeginAtStored(why);
  row_.Release(maybe_sent_upto_ == 0, sent_again_.Take());
  maybe_sent_upto_ = 0;
  maybe_left_ = false;
}

void LogOutbox::Checkpoint() {
  const std::int64_t sent_again = sent_again_.Take();
  if (!row_.Checkpoint(progress_->settled(), sent_again)) {
    sent_again_.Add(sent_again);
    const std::string lane = publication_.name + "\": lane " + std::to_string(slice_);
    LogLimited("taken over " + lane,
               {.message = "publication \"" + lane + " was taken over, or takes other events now"});
    BeginAtStored("");
    return;
  }
  // What comes after a backlog is read as the stored position says.
  depends_on_commit_ = depends_on_commit_ || progress_->is_split();
  stored_before_ = {std::exchange(stored_, progress_->settled()), stored_next_};
  stored_next_ = progress_->first_unsettled();
  stored_at_ = Clock::now();
  dirty_ = !progress_->idle();
  lease_uncertain_ = false;
  if (BacklogIsSettled()) backlog_unstored_ = false;
}

}  // namespace postbox::publisher
