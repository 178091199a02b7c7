#include "worker/publisher/source/log/lane_ownership.h"

#include "worker/publisher/base/limited_log.h"
#include "worker/publisher/base/registration.h"

namespace postbox::publisher {

LaneOwnership::LaneOwnership(const Publication& publication, int slice,
                             std::shared_ptr<LaneShare> share, std::string lock_token)
    : publication_(publication),
      slice_(slice),
      share_(std::move(share)),
      row_(publication, slice, std::move(lock_token)) {}

int LaneOwnership::Share() const {
  const int workers = std::max(1, CountLiving(identity().database, LeaseMilliseconds()));
  return (publication_.lanes + workers - 1) / workers;
}

bool LaneOwnership::IsLeftBehind() {
  maybe_left_ = maybe_left_ && row_.IsOurs();
  return maybe_left_;
}

bool LaneOwnership::MayTake() { return share_->held < Share() || IsLeftBehind(); }

std::optional<LaneRow::Taken> LaneOwnership::TryTake() {
  std::optional<LaneRow::Taken> taken = row_.TryAcquire();
  if (!taken) return std::nullopt;
  has_ = true;
  uncertain_ = false;
  ++share_->held;
  return taken;
}

void LaneOwnership::Drop() {
  maybe_left_ = true;
  if (std::exchange(has_, false)) --share_->held;
}

void LaneOwnership::Release(bool in_order, std::int64_t sent_again) {
  Drop();
  row_.Release(in_order, sent_again);
  maybe_left_ = false;
}

bool LaneOwnership::Store(const LanePosition& position, std::int64_t sent_again) {
  if (row_.Checkpoint(position, sent_again)) {
    uncertain_ = false;
    return true;
  }
  LogLimited("taken over " + Name(),
             {.message = Name() + " was taken over, or takes other events now"});
  return false;
}

std::string LaneOwnership::Name() const {
  return "publication \"" + publication_.name + "\": lane " + std::to_string(slice_);
}

}  // namespace postbox::publisher
