#include "worker/pubsub/publish/outgoing_queue.h"

#include <array>
#include <utility>

#include "proto/rules/wire_size.h"
#include "worker/pubsub/publish/publish_topic.h"

namespace postbox::pubsub {

bool OutgoingQueue::TakeBatch(std::chrono::steady_clock::time_point now, OutgoingBatch* batch) {
  const std::size_t most_bytes = pace ? pace->most_bytes() : kMaxRequestBytes;
  while (!again.empty()) {
    *batch = std::move(again.back());
    again.pop_back();
    if (batch->size <= most_bytes || batch->messages.size() == 1) return true;
    PutBackInHalves(*batch);
  }
  batch->size = EmptyRequestSize(topic->name.size());
  waiting.Fill(batch, most_bytes, now);
  return !batch->messages.empty();
}

void OutgoingQueue::PutBackInHalves(const OutgoingBatch& batch) {
  std::array<OutgoingBatch, 2> halves = batch.Halves(topic->name.size());
  again.push_back(std::move(halves[1]));
  again.push_back(std::move(halves[0]));
}

}  // namespace postbox::pubsub
