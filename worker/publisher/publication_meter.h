// Where a publication is counted (extension/shared/metrics.h): the number that its messages have,
// and how long its events took from when they occurred to their confirmation.
#ifndef POSTBOX_WORKER_PUBLISHER_PUBLICATION_METER_H_
#define POSTBOX_WORKER_PUBLISHER_PUBLICATION_METER_H_

#include "extension/shared/metrics.h"
#include "worker/publisher/source/claimed_event.h"

namespace postbox::publisher {

class PublicationMeter {
 public:
  PublicationMeter(std::string publication, std::string topic)
      : publication_(std::move(publication)), topic_(std::move(topic)) {}

  // For OutgoingMessage::meter. 0 if the registry is full, or the server has none; a full one is
  // asked again after a second.
  std::uint16_t Number();

 private:
  const std::string publication_;
  const std::string topic_;
  std::optional<MetricPlace> place_;
  uint64 ask_again_at_ = 0;  // MonotonicMilliseconds()
};

// Of the events that are published. To be called when their results have come.
void ObserveLatency(const Events& events);

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_PUBLICATION_METER_H_
