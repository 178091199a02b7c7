#include "worker/pubsub/ack_batcher.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace postbox::pubsub {
namespace {

// The size of an id on the wire: its tag, its length (three bytes are enough for 2 MiB) and itself.
size_t WireBytes(const AckEntry& entry) { return entry.ack_id.size() + 4; }

}  // namespace

void AckBatcher::Add(int deadline_seconds, AckEntry entry, TimePoint now) {
  Queue& queue = queues_[deadline_seconds];
  queue.bytes += WireBytes(entry);
  queue.entries.push_back(std::move(entry));
  if (!flush_at_) flush_at_ = now + kDelay;
}

void AckBatcher::Retry(int deadline_seconds, std::vector<AckEntry> entries, TimePoint now) {
  if (entries.empty()) return;
  Queue& queue = queues_[deadline_seconds];
  for (const AckEntry& entry : entries) queue.bytes += WireBytes(entry);
  queue.entries.insert(queue.entries.begin(), std::make_move_iterator(entries.begin()),
                       std::make_move_iterator(entries.end()));
  if (!flush_at_) flush_at_ = now + kDelay;
}

void AckBatcher::Flush(TimePoint now) {
  if (!queues_.empty()) flush_at_ = now;
}

AckRequest AckBatcher::Build(int deadline_seconds, Queue& queue, TimePoint now) {
  AckRequest request;
  request.deadline_seconds = deadline_seconds;
  const bool serial = serial_per_key_ && request.is_ack();
  std::unordered_set<std::string> passed_over;
  size_t bytes = fixed_bytes_;
  std::deque<AckEntry> rest;
  while (!queue.entries.empty() && request.entries.size() < kMaxIds) {
    AckEntry& entry = queue.entries.front();
    const bool keyed = serial && !entry.key.empty();
    if (entry.not_before > now ||
        (keyed && (keys_in_flight_.contains(entry.key) || passed_over.contains(entry.key)))) {
      if (keyed) passed_over.insert(entry.key);
      rest.push_back(std::move(entry));
    } else {
      size_t size = WireBytes(entry);
      // A single id always leaves, whatever its size.
      if (bytes + size > kMaxBytes && !request.entries.empty()) break;
      bytes += size;
      queue.bytes -= size;
      if (entry.attempts++ == 0) entry.first_sent = now;
      request.entries.push_back(std::move(entry));
    }
    queue.entries.pop_front();
  }
  queue.entries.insert(queue.entries.begin(), std::make_move_iterator(rest.begin()),
                       std::make_move_iterator(rest.end()));
  if (serial) {
    for (const AckEntry& entry : request.entries) {
      if (!entry.key.empty()) keys_in_flight_.insert(entry.key);
    }
  }
  return request;
}

std::optional<AckRequest> AckBatcher::Take(TimePoint now) {
  const bool due = flush_at_ && now >= *flush_at_;
  for (auto it = queues_.begin(); it != queues_.end(); ++it) {
    auto& [deadline_seconds, queue] = *it;
    if (!due && queue.entries.size() < full_at_ && queue.bytes + fixed_bytes_ < kMaxBytes) continue;
    AckRequest request = Build(deadline_seconds, queue, now);
    if (queue.entries.empty()) queues_.erase(it);
    if (request.entries.empty()) continue;
    return request;
  }
  if (queues_.empty()) {
    flush_at_.reset();
  } else if (due) {
    flush_at_ = now + kDelay;  // the remaining entries wait for their key or their retry
  }
  return std::nullopt;
}

void AckBatcher::Finished(const AckRequest& request) {
  if (!request.is_ack()) return;
  for (const AckEntry& entry : request.entries) keys_in_flight_.erase(entry.key);
}

std::optional<AckBatcher::TimePoint> AckBatcher::NextDue() const {
  if (queues_.empty()) return std::nullopt;
  return flush_at_;
}

}  // namespace postbox::pubsub
