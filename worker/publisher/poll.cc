#include "worker/publisher/poll.h"

#include "extension/shared/settings.h"
#include "worker/publisher/base/time_after.h"
#include "worker/publisher/heap.h"
#include "worker/publisher/kept_plans.h"

namespace postbox::publisher {
namespace {

// Up to so many lanes claim at each poll, whatever their sequences say. Of more, one in turn does:
// that of a lane that has been still for long makes its plans.
constexpr std::size_t kFewLanes = 10;
// Each sequence is locked until its transaction ends, and the server has room for so many locks of
// each.
constexpr std::size_t kSequencesOfTransaction = 50;

// The heap is given back when so many lanes have freed their plans.
constexpr std::size_t kWorthGivingBack = 20;

struct Still {
  Lane* lane;
  ReadMark mark;
};

// Those whose sequence has moved are to claim.
void LookAt(std::span<const Still> lanes) {
  // It is never destroyed: at exit the server's memory goes without us.
  static Statement& statement =
      *new Statement("SELECT pg_catalog.pg_sequence_last_value(s) FROM pg_catalog.unnest($1) AS s",
                     {REGCLASSARRAYOID});
  std::vector<Datum> sequences;
  sequences.reserve(lanes.size());
  for (const Still& one : lanes) sequences.push_back(ObjectIdGetDatum(one.mark.sequence));
  InTransaction("postbox: looking for new events", [&] {
    const Datum array = Pg([&] {
      return PointerGetDatum(construct_array(sequences.data(), static_cast<int>(sequences.size()),
                                             REGCLASSOID, sizeof(Oid), true, TYPALIGN_INT));
    });
    statement.RunReadOnly({array});
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      if (Int64Column(i, 1) != lanes[i].mark.value) lanes[i].lane->MarkReady();
    }
  });
}

}  // namespace

void Poll::Look(const std::vector<LanePointer>& lanes, TimestampTz now) {
  if (now < next_) return;
  next_ = After(now, settings().poll_interval);
  if (lanes.empty()) return;
  first_ = (first_ + 1) % lanes.size();
  const std::size_t claims = lanes.size() <= kFewLanes ? lanes.size() : 1;
  std::vector<Still> still;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    Lane* lane = lanes[(first_ + i) % lanes.size()].get();
    const std::optional<ReadMark> mark = lane->ReadUpTo();
    if (i < claims || !mark) {
      lane->MarkReady();
    } else {
      if (claims == 1 && FreePlansIfStill(lane, now)) ++freed_;
      still.push_back({lane, *mark});
    }
  }
  freed_ += LimitPlans(lanes, now);
  if (freed_ >= kWorthGivingBack) {
    freed_ = 0;
    GiveBackFreedHeap();
  }
  for (std::size_t i = 0; i < still.size(); i += kSequencesOfTransaction) {
    const std::span<const Still> part = std::span<const Still>(still).subspan(
        i, std::min(kSequencesOfTransaction, still.size() - i));
    try {
      LookAt(part);
    } catch (const PostgresError&) {
      // One of them was dropped, for example. What became of its outbox the claim says.
      for (const Still& one : part) one.lane->MarkReady();
    }
  }
}

}  // namespace postbox::publisher
