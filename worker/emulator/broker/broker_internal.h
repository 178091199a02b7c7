// What the files of the broker share.
#ifndef POSTBOX_WORKER_EMULATOR_BROKER_BROKER_INTERNAL_H_
#define POSTBOX_WORKER_EMULATOR_BROKER_BROKER_INTERNAL_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "worker/emulator/broker/broker.h"

namespace postbox::emulator {

// A subscription and the calls that wait for its messages.
struct Broker::Feed {
  explicit Feed(google::pubsub::v1::Subscription config, uint64_t incarnation, bool deliver_twice,
                DeadLetterQueue::TopicExists topic_exists)
      : state(std::move(config), incarnation, deliver_twice, std::move(topic_exists)) {}

  Subscription state;
  google::iam::v1::Policy policy;
  bool deleted = false;
  std::map<StreamId, std::shared_ptr<Listener>> streams;
  std::vector<std::shared_ptr<Listener>> pulls;  // each is woken once
};

// The messages of a request that a topic has taken and that no subscription has yet.
struct Broker::Undelivered {
  std::string topic;
  std::vector<std::shared_ptr<StoredMessage>> messages;
  absl::Time accepted;
  bool due = false;  // its publisher was answered
};

inline absl::Status NotFound(absl::string_view name) {
  return absl::NotFoundError(absl::StrCat("resource not found (resource=", name, ")"));
}

inline absl::Status AlreadyExists(absl::string_view name) {
  return absl::AlreadyExistsError(absl::StrCat("resource already exists (resource=", name, ")"));
}

inline absl::Status Detached(absl::string_view name) {
  return absl::FailedPreconditionError(
      absl::StrCat("subscription is detached from its topic (resource=", name, ")"));
}

template <class Action>
auto Broker::With(const std::shared_ptr<Feed>& feed, Action action) {
  WakeList wakes;
  auto result = [&] {
    const Change change(this);
    const absl::Time now = clock_();
    feed->state.Tick(now);
    auto value = action(&feed->state, now);
    Finish(feed.get(), &wakes);
    return value;
  }();
  for (const auto& listener : wakes) listener->Wake();
  return result;
}

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_BROKER_BROKER_INTERNAL_H_
