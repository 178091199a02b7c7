#include "worker/emulator/broker/broker.h"

#include <memory>

#include "absl/time/time.h"
#include "worker/emulator/broker/recovery.h"

namespace postbox::emulator {

// A publisher that does not take its answer for so long does not hold up others.
constexpr absl::Duration kAnswerPatience = absl::Seconds(1);

absl::Status Broker::Recover() {
  BrokerChange change(&state_);
  if (change->options.data_directory.empty()) return absl::OkStatus();
  if (auto s = change->journal.Open(change->options.data_directory); !s.ok()) return s;
  Recovery recovery(change.state(), &schemas_);
  if (auto s = recovery.Run(); !s.ok()) return s;
  for (auto& [name, topic] : change->resources.topics()) {
    change->delivery.DeliverAll(&topic, absl::InfiniteFuture(), change.wakes());
  }
  return absl::OkStatus();
}

void Broker::Tick() {
  BrokerChange change(&state_);
  Resources& resources = change->resources;
  const absl::Time now = change->clock();
  for (auto& [name, topic] : resources.topics()) {
    change->delivery.DeliverAll(&topic, now - kAnswerPatience, change.wakes());
    const absl::Time oldest = now - ToDuration(topic.proto.message_retention_duration());
    while (!topic.retained.empty() && topic.retained.front()->published <= oldest) {
      change->journal.Retained(name, topic.retained.front()->sequence, false);
      topic.retained.pop_front();
    }
  }
  for (const auto& [name, feed] : resources.feeds()) {
    if (feed->state.next_tick() > now) continue;
    feed->state.Tick(now);
    change->delivery.Finish(feed.get(), change.wakes());
  }
  for (auto it = resources.snapshots().begin(); it != resources.snapshots().end();) {
    if (it->second.expires > now) {
      ++it;
      continue;
    }
    change->journal.SnapshotDeleted(it->first);
    it = resources.snapshots().erase(it);
  }
}

void Broker::WakeAll() {
  BrokerChange change(&state_);
  for (const auto& [name, feed] : change->resources.feeds()) feed->TakeAll(change.wakes());
}

std::vector<SubscriptionStats> Broker::Stats() {
  std::vector<SubscriptionStats> all;
  const BrokerAccess access(&state_);
  for (const auto& [name, feed] : access->resources.feeds()) {
    all.push_back({name, static_cast<int64_t>(feed->streams.size()), feed->state.counters()});
  }
  return all;
}

int64_t Broker::messages_published() {
  const BrokerAccess access(&state_);
  return access->delivery.messages_published();
}

}  // namespace postbox::emulator
