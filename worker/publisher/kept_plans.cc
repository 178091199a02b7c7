#include "worker/publisher/kept_plans.h"

#include "extension/shared/time_scale.h"

namespace postbox::publisher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPlansKept = std::chrono::seconds(30);
// So many lanes keep their plans for that long, which takes 40 MB; others for as long as this.
constexpr std::size_t kMostPlanned = 100;
constexpr milliseconds kPlansKeptOfMany = std::chrono::seconds(1);

bool IsStill(const Lane& lane, TimestampTz now, milliseconds time) {
  const std::optional<TimestampTz> since = lane.StillSince();
  return since && now - *since >= Scaled(time).count() * 1000;
}

}  // namespace

bool FreePlansIfStill(Lane* lane, TimestampTz now) {
  if (!IsStill(*lane, now, kPlansKept)) return false;
  lane->FreePlans();
  return true;
}

std::size_t LimitPlans(const std::vector<LanePointer>& lanes, TimestampTz now) {
  if (lanes.size() <= kMostPlanned) return 0;
  std::size_t planned = 0;
  std::vector<Lane*> still;
  for (const LanePointer& lane : lanes) {
    planned += lane->has_plans();
    if (IsStill(*lane, now, kPlansKeptOfMany)) still.push_back(lane.get());
  }
  if (planned <= kMostPlanned) return 0;
  const std::size_t count = std::min(planned - kMostPlanned, still.size());
  const auto end = still.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(still.begin(), end, still.end(), [](const Lane* one, const Lane* other) {
    return *one->StillSince() < *other->StillSince();
  });
  for (auto lane = still.begin(); lane != end; ++lane) (*lane)->FreePlans();
  return count;
}

}  // namespace postbox::publisher
