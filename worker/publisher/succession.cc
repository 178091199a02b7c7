#include "worker/publisher/succession.h"

#include "worker/publisher/base/limited_log.h"
#include "worker/publisher/base/registration.h"
#include "worker/publisher/scale.h"
#include "worker/publisher/source/log/divide_lanes.h"

namespace postbox::publisher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// How often a worker looks whether the others have given up their lanes of a publication whose keys
// are to be divided again, and for how long.
constexpr milliseconds kDivideLook(20);
constexpr milliseconds kDividePatience = seconds(10);
// Triggers of the owner may run.
constexpr milliseconds kDivideTime(500);
// When it is tried again because too many events waited: after this, and twice as long each time.
constexpr milliseconds kDivideAgain = seconds(1);
constexpr milliseconds kMostDivideAgain = seconds(30);

}  // namespace

void Succession::Begin() {
  awaited_.clear();
  undivided_.clear();
}

void Succession::Finish(const LanePointer& lane, const std::vector<Publication>& publications,
                        Moment now) {
  for (const Publication& publication : publications) {
    if (!publication.IsAltered(lane->publication())) continue;
    lane->Finish(now, publication);
    finishing_.push_back(lane);
    return;
  }
  // Events that are still out hold their lane until they are settled.
  lane->Retire("");
}

bool Succession::Proceed(Moment now, std::vector<LanePointer>* lanes) {
  std::erase_if(finishing_, [&](const LanePointer& lane) {
    if (!lane->results().IsFinished(now)) return false;
    const bool followed = std::any_of(awaited_.begin(), awaited_.end(), [&](const Awaited& one) {
      return one.publication.wanted_lanes == 0 && one.publication.name == lane->publication().name;
    });
    lane->Conclude(now, !followed);
    lane->Retire("the publication was altered or paused");
    return true;
  });
  const auto made = std::erase_if(awaited_, [&](Awaited& one) {
    if (std::any_of(finishing_.begin(), finishing_.end(), [&](const LanePointer& lane) {
          return lane->publication().name == one.publication.name;
        })) {
      return false;
    }
    if (!MayMakeLanes(&one, now)) return false;
    for (LanePointer& lane : MakeLanes(one.publication, one.topic)) {
      lanes->push_back(std::move(lane));
    }
    return true;
  });
  return made > 0;
}

bool Succession::MayMakeLanes(Awaited* awaited, Moment now) {
  const Publication& publication = awaited->publication;
  if (publication.wanted_lanes == 0) return true;
  const TimeScale scaled = Scale();
  if (awaited->give_up_at == 0) awaited->give_up_at = After(now, scaled(kDividePatience));
  Division division = Division::kWaits;
  try {
    Transaction transaction("postbox: dividing the keys of a publication");
    transaction.Limit(publication.outbox, scaled(kDivideTime));
    transaction.Run([&] {
      transaction.Begin();
      division = DivideLanes(publication);
    });
  } catch (const PostgresError& error) {
    LeaveIfExtensionGone();
    LogFailure("divide the keys of a publication", error);
    division = Division::kTooMany;
  }
  // Done: the configuration has changed, and is read again.
  if (division == Division::kDone) divide_delay_ = {};
  if (division == Division::kDone || (division == Division::kWaits && now < awaited->give_up_at)) {
    return false;
  }
  undivided_.push_back(publication);
  divide_delay_ = std::clamp(divide_delay_ * 2, scaled(kDivideAgain), scaled(kMostDivideAgain));
  divide_at_ = After(now, divide_delay_);
  return true;
}

void Succession::TryToDivideAgain(Moment now) {
  if (undivided_.empty() || now < divide_at_) return;
  divide_at_ = After(now, Scale()(kDivideAgain));
  if (identity().ordinal != 0) return;
  bool any = false;
  try {
    for (const Publication& publication : undivided_) {
      Transaction transaction("postbox: looking whether the keys of a publication can be divided");
      transaction.Limit(publication.outbox, Scale()(kDivideTime));
      transaction.Run([&] {
        transaction.Begin();
        any = any || CanBeDivided(publication);
      });
    }
  } catch (const PostgresError& error) {
    LeaveIfExtensionGone();
    LogFailure("divide the keys of a publication", error);
  }
  if (!any) return;
  Pg([] {
    RaiseConfigGeneration();
    WakePublishers(MyDatabaseId);
  });
}

Moment Succession::NextStep(Moment now) const {
  Moment next = undivided_.empty() ? kNever : divide_at_;
  for (const LanePointer& lane : finishing_) next = std::min(next, lane->results().finish_by());
  if (finishing_.empty() && !awaited_.empty()) next = std::min(next, After(now, kDivideLook));
  return next;
}

}  // namespace postbox::publisher
