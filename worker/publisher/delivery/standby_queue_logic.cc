#include "worker/publisher/delivery/standby_queue_logic.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace postbox::publisher {
namespace {

// The next look is after this part of the time that has passed.
constexpr std::int64_t kPart = 4;
constexpr std::int64_t kShortest = 1000;
constexpr std::int64_t kLongest = 100'000;

}  // namespace

void StandbyQueue::Add(const std::string& publication, std::uint64_t position, std::int64_t now,
                       Messages messages) {
  if (!empty()) position = std::max(position, batches_.back().waiting.position);
  batches_.push_back({{publication, position, now}, std::move(messages)});
}

StandbyQueue::Messages StandbyQueue::TakeSafe(std::uint64_t confirmed) {
  Messages safe;
  while (!empty() && batches_.front().waiting.position <= confirmed) {
    Messages& messages = batches_.front().messages;
    if (safe.empty()) {
      safe = std::move(messages);
    } else {
      safe.insert(safe.end(), messages.begin(), messages.end());
    }
    batches_.pop_front();
  }
  return safe;
}

StandbyQueue::Messages StandbyQueue::GiveBack(std::int64_t now, std::int64_t most) {
  Messages all;
  if (empty() || batches_.front().waiting.since + most > now) return all;
  for (Batch& batch : batches_) {
    all.insert(all.end(), batch.messages.begin(), batch.messages.end());
    batch.messages.clear();
  }
  return all;
}

std::vector<StandbyQueue::Waiting> StandbyQueue::Overview() const {
  std::vector<Waiting> waiting;
  for (const Batch& batch : batches_) {
    const auto same = [&](const Waiting& other) {
      return other.publication == batch.waiting.publication;
    };
    if (std::none_of(waiting.begin(), waiting.end(), same)) waiting.push_back(batch.waiting);
  }
  return waiting;
}

std::int64_t StandbyQueue::NextLook(std::int64_t now) const {
  if (empty()) return std::numeric_limits<std::int64_t>::max();
  const std::int64_t waited = now - batches_.front().waiting.since;
  return now + std::clamp(waited / kPart, kShortest, kLongest);
}

}  // namespace postbox::publisher
