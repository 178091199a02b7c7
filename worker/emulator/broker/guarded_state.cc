#include "worker/emulator/broker/guarded_state.h"

namespace postbox::emulator {

void GuardedState::DeliverAccepted() {
  BrokerChange change(this);
  for (auto& [name, topic] : change->resources.topics()) {
    change->delivery.DeliverAll(&topic, absl::InfiniteFuture(), change.wakes());
  }
}

FeedChange::FeedChange(GuardedState* state, const std::string& subscription)
    : change_(state), now_(change_->clock()) {
  const auto feed = change_->resources.FindFeed(subscription);
  status_ = feed.status();
  if (!feed.ok()) return;
  feed_ = *feed;
  feed_->state.Tick(now_);
}

FeedChange::FeedChange(GuardedState* state, std::shared_ptr<Feed> feed)
    : change_(state), feed_(std::move(feed)), now_(change_->clock()) {
  feed_->state.Tick(now_);
}

absl::Status FeedChange::CheckAttached() const {
  const auto& config = feed_->state.config();
  return config.detached() ? Detached(config.name()) : absl::OkStatus();
}

}  // namespace postbox::emulator
