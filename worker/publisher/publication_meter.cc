#include "worker/publisher/publication_meter.h"

#include "extension/base/guard.h"
#include "extension/shared/shared_state.h"
#include "worker/publisher/source/event_message.h"

namespace postbox::publisher {
namespace {

constexpr uint64 kAskAgainMs = 1000;
static_assert(kMaxMetricPublications < UINT16_MAX);

void AddLatency(std::uint16_t meter, const Durations& durations) {
  if (meter != 0) metrics_state()->publications.data[meter - 1].latency.Add(durations);
}

}  // namespace

std::uint16_t PublicationMeter::Number() {
  if (metrics_state() == nullptr) return 0;
  if (!place_ || !IsPlace(MetricKind::kPublication, *place_)) {
    const uint64 now = MonotonicMilliseconds();
    if (now < ask_again_at_) return 0;
    ask_again_at_ = now + kAskAgainMs;
    Pg([&] {
      place_ = FindMetrics(MetricKind::kPublication, InvalidOid, publication_);
      if (place_) SetMetricTopic(*place_, topic_);
    });
    if (!place_) return 0;
    ask_again_at_ = 0;
  }
  return static_cast<std::uint16_t>(place_->index + 1);
}

void ObserveLatency(const Events& events) {
  if (metrics_state() == nullptr || events.empty()) return;
  const int64 now = UnixMicros(GetCurrentTimestamp());
  std::uint16_t meter = 0;
  Durations durations;
  for (const EventPointer& event : events) {
    if (event->status != pubsub::PublishStatus::kPublished || event->occurred_at == 0) continue;
    if (event->meter != meter) {
      AddLatency(meter, std::exchange(durations, {}));
      meter = event->meter;
    }
    durations.Observe(now - event->occurred_at);
  }
  AddLatency(meter, durations);
}

}  // namespace postbox::publisher
