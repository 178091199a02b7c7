#include "worker/pubsub/pull/lease_keeper.h"

#include <algorithm>

namespace postbox::pubsub {
namespace {

constexpr std::chrono::seconds kTogether{1};
// All counts are halved when this many acks were measured, so that old ones lose their weight.
constexpr uint64_t kHalveAt = 10000;

}  // namespace

void LeaseKeeper::Schedule(uint64_t handle, Lease& lease, TimePoint now) {
  lease.due = now + Extension() - kMargin;
  by_due_.emplace(lease.due, handle);
}

void LeaseKeeper::Add(uint64_t handle, TimePoint now) { received_.emplace_back(now, handle); }

void LeaseKeeper::AddConfirmed(uint64_t handle, TimePoint now) {
  auto [it, is_new] = leases_.try_emplace(handle);
  if (!is_new) return;
  it->second.received = now;
  Schedule(handle, it->second, now);
}

void LeaseKeeper::Record(TimePoint received, TimePoint now) {
  auto held = std::chrono::ceil<Seconds>(now - received).count();
  auto bucket = std::clamp<int64_t>(held, 0, static_cast<int64_t>(ack_times_.size()) - 1);
  ++ack_times_[static_cast<size_t>(bucket)];
  if (++ack_time_count_ < kHalveAt) return;
  ack_time_count_ = 0;
  for (auto& count : ack_times_) ack_time_count_ += (count /= 2);
}

void LeaseKeeper::Remove(uint64_t handle) {
  auto it = leases_.find(handle);
  if (it == leases_.end()) return;
  by_due_.erase({it->second.due, handle});
  leases_.erase(it);
}

LeaseKeeper::Seconds LeaseKeeper::Extension() const {
  Seconds percentile = kStreamDeadline;
  if (ack_time_count_ > 0) {
    // The smallest time within which at least 99 % of the acks came.
    uint64_t wanted = (ack_time_count_ * 99 + 99) / 100, seen = 0;
    size_t bucket = 0;
    while (bucket + 1 < ack_times_.size() && (seen += ack_times_[bucket]) < wanted) ++bucket;
    percentile = Seconds(bucket);
  }
  return std::clamp(percentile, exactly_once_ ? kMinExactlyOnceExtension : kMinExtension,
                    kMaxExtension);
}

std::optional<LeaseKeeper::TimePoint> LeaseKeeper::NextDue() const {
  std::optional<TimePoint> next;
  if (!by_due_.empty()) next = by_due_.begin()->first;
  if (received_.empty()) return next;
  const TimePoint receipt = received_.front().first + kReceiptDelay;
  return next ? std::min(*next, receipt) : receipt;
}

void LeaseKeeper::TakeReceipts(TimePoint now, absl::FunctionRef<bool(uint64_t)> is_held, Due* due) {
  for (; !received_.empty() && received_.front().first + kReceiptDelay <= now;
       received_.pop_front()) {
    const auto [received, handle] = received_.front();
    if (!is_held(handle)) continue;
    Lease& lease = leases_[handle];
    lease.received = received;
    Schedule(handle, lease, now);
    due->extend.push_back(handle);
  }
}

LeaseKeeper::Due LeaseKeeper::TakeDue(TimePoint now, absl::FunctionRef<bool(uint64_t)> is_held) {
  Due due;
  TakeReceipts(now, is_held, &due);
  if (by_due_.empty() || by_due_.begin()->first > now) return due;
  std::vector<uint64_t> handles;
  while (!by_due_.empty() && by_due_.begin()->first <= now + kTogether) {
    handles.push_back(by_due_.begin()->second);
    by_due_.erase(by_due_.begin());
  }
  for (uint64_t handle : handles) {
    auto it = leases_.find(handle);
    if (now - it->second.received >= kMaxHold) {
      leases_.erase(it);
      due.give_up.push_back(handle);
    } else {
      Schedule(handle, it->second, now);
      due.extend.push_back(handle);
    }
  }
  return due;
}

}  // namespace postbox::pubsub
