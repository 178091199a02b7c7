#include "worker/pubsub/pull/ack_batcher.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace postbox::pubsub {
namespace {

// The size of an id on the wire: its tag, its length (three bytes are enough for 2 MiB) and itself.
size_t WireBytes(const AckEntry& entry) { return entry.ack_id.size() + 4; }

}  // namespace

void AckBatcher::Add(int deadline_seconds, AckEntry entry, TimePoint now) {
  if (deadline_seconds == AckRequest::kAcknowledge && keys_in_flight_.contains(entry.key)) {
    held_[entry.key].push_back(std::move(entry));
    return;
  }
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

bool AckBatcher::IsFull(int deadline_seconds, const Queue& queue) const {
  const bool acks = deadline_seconds == AckRequest::kAcknowledge;
  const size_t left = outstanding_ - std::min(outstanding_, acks ? acks_in_flight_ : 0);
  const size_t full_at =
      std::clamp<size_t>(std::max(left / 2, outstanding_ / kSmallestPart), 1, kMaxIds);
  return queue.entries.size() >= full_at || queue.bytes + fixed_bytes_ >= kMaxBytes;
}

AckRequest AckBatcher::Build(int deadline_seconds, Queue& queue, TimePoint now) {
  AckRequest request;
  request.deadline_seconds = deadline_seconds;
  const bool serial = request.serial = serial_per_key_ && request.is_ack();
  absl::flat_hash_set<std::string_view> passed_over;
  size_t bytes = fixed_bytes_;
  std::deque<AckEntry> rest;
  while (!queue.entries.empty() && request.entries.size() < kMaxIds) {
    AckEntry& entry = queue.entries.front();
    const bool keyed = serial && !entry.key.empty();
    if (entry.not_before > now || (keyed && passed_over.contains(entry.key))) {
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
    Hold(queue);
  }
  return request;
}

// Takes the entries out whose key is in flight. None is left, so what Add() holds comes after them.
void AckBatcher::Hold(Queue& queue) {
  std::erase_if(queue.entries, [&](AckEntry& entry) {
    if (!keys_in_flight_.contains(entry.key)) return false;
    queue.bytes -= WireBytes(entry);
    held_[entry.key].push_back(std::move(entry));
    return true;
  });
}

std::optional<AckRequest> AckBatcher::Take(TimePoint now) {
  const bool due = flush_at_ && now >= *flush_at_;
  for (auto it = queues_.begin(); it != queues_.end(); ++it) {
    auto& [deadline_seconds, queue] = *it;
    if (!due && !IsFull(deadline_seconds, queue)) continue;
    AckRequest request = Build(deadline_seconds, queue, now);
    if (queue.entries.empty()) queues_.erase(it);
    if (request.entries.empty()) continue;
    if (request.is_ack()) acks_in_flight_ += request.entries.size();
    return request;
  }
  if (queues_.empty()) {
    flush_at_.reset();
  } else if (due) {
    flush_at_ = now + kDelay;  // the remaining entries wait for a retry
  }
  return std::nullopt;
}

void AckBatcher::Finished(const AckRequest& request, TimePoint now) {
  if (!request.is_ack()) return;
  acks_in_flight_ -= request.entries.size();
  if (!request.serial) return;
  for (const AckEntry& entry : request.entries) {
    if (keys_in_flight_.erase(entry.key) == 0) continue;
    const auto held = held_.find(entry.key);
    if (held == held_.end()) continue;
    std::vector<AckEntry> entries = std::move(held->second);
    held_.erase(held);
    for (AckEntry& next : entries) Add(AckRequest::kAcknowledge, std::move(next), now);
  }
}

std::optional<AckBatcher::TimePoint> AckBatcher::NextDue() const {
  if (queues_.empty()) return std::nullopt;
  return flush_at_;
}

}  // namespace postbox::pubsub
