// Publishing, delivery and acknowledgement of messages. Resources are in broker_topics.cc,
// broker_subscriptions.cc and broker_snapshots.cc.
#include "worker/emulator/broker/broker.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "worker/emulator/broker/broker_internal.h"
#include "worker/emulator/rules/status.h"
#include "worker/emulator/rules/validation.h"
#include "worker/emulator/subscription/ack_id.h"

namespace postbox::emulator {

namespace pb = google::pubsub::v1;

namespace {

// A publisher that does not take its answer for so long does not hold up others.
constexpr absl::Duration kAnswerPatience = absl::Seconds(1);

AckFailures FailuresOf(const AckOutcome& result) {
  AckFailures failures;
  for (const std::string& id : result.stale) failures.emplace_back(id, kInvalidAckId);
  for (const std::string& id : result.unordered) failures.emplace_back(id, kUnorderedAckId);
  return failures;
}

std::vector<std::shared_ptr<StoredMessage>> MakeStoredMessages(
    const google::protobuf::RepeatedPtrField<pb::PubsubMessage>& messages) {
  std::vector<std::shared_ptr<StoredMessage>> made;
  made.reserve(static_cast<size_t>(messages.size()));
  for (const pb::PubsubMessage& message : messages) made.push_back(MakeStoredMessage(message));
  return made;
}

template <class Ids>
absl::Status CheckForm(const Ids& ids) {
  AckId parsed;
  for (const absl::string_view id : ids) {
    if (!ParseAckId(id, &parsed)) {
      return absl::InvalidArgumentError(
          absl::StrCat("invalid ack id passed to the service (ack_id=", id, ")"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

Broker::Broker(Clock clock, BrokerOptions options)
    : clock_(std::move(clock)),
      options_(std::move(options)),
      schemas_(clock_),
      first_message_id_(static_cast<uint64_t>(std::max<int64_t>(0, absl::ToUnixMicros(clock_())))),
      last_incarnation_(first_message_id_),
      publish_quotas_(options_.publish_rates) {}

std::string Broker::NewName(absl::string_view neighbour, absl::string_view kind) {
  const std::vector<absl::string_view> parts = absl::StrSplit(neighbour, '/');
  for (;;) {
    std::string name = absl::StrCat("projects/", parts[1], "/", kind, "s/", kind, "-",
                                    absl::Hex(first_message_id_ + ++last_name_));
    if (!feeds_.contains(name) && !snapshots_.contains(name)) return name;
  }
}

// ---- the common part of all operations on a subscription ----

absl::StatusOr<std::shared_ptr<Broker::Feed>> Broker::FindFeed(const std::string& name) {
  const auto found = feeds_.find(name);
  if (found == feeds_.end()) return NotFound(name);
  return found->second;
}

absl::StatusOr<std::shared_ptr<Broker::Feed>> Broker::LookUp(const std::string& name) {
  const std::lock_guard<std::mutex> lock(mu_);
  return FindFeed(name);
}

void Broker::Finish(Feed* feed, WakeList* wakes) {
  SaveEntries(feed);
  for (const DeadLetter& letter : feed->state.TakeDeadLetters()) {
    const auto topic = topics_.find(letter.topic);
    if (topic == topics_.end()) continue;
    Enqueue(&topic->second, {MakeStoredMessage(letter.message)})->due = true;
    DeliverDue(&topic->second, wakes);
  }
  for (const auto& [id, listener] : feed->streams) {
    if (feed->state.HasWork(id)) wakes->push_back(listener);
  }
  if (!feed->pulls.empty() && feed->state.HasPullWork()) {
    std::move(feed->pulls.begin(), feed->pulls.end(), std::back_inserter(*wakes));
    feed->pulls.clear();
  }
}

std::shared_ptr<Broker::Undelivered> Broker::Enqueue(
    Topic* topic, std::vector<std::shared_ptr<StoredMessage>> messages) {
  const absl::Time now = clock_();
  for (std::shared_ptr<StoredMessage>& message : messages) {
    ++last_sequence_;
    Stamp(last_sequence_, MessageId(last_sequence_), now, message.get());
    message = journal_.Keep(std::move(message));
    journal_.MessageTaken(topic->proto.name(), *message);
  }
  published_ += static_cast<int64_t>(messages.size());
  topic->undelivered.push_back(std::make_shared<Undelivered>(
      Undelivered{topic->proto.name(), std::move(messages), now, /*due=*/false}));
  return topic->undelivered.back();
}

void Broker::DeliverDue(Topic* topic, WakeList* wakes) {
  while (!topic->undelivered.empty() && topic->undelivered.front()->due) {
    const std::shared_ptr<Undelivered> next = std::move(topic->undelivered.front());
    topic->undelivered.pop_front();
    const std::string& topic_name = topic->proto.name();
    journal_.Delivered(topic_name, next->messages.back()->sequence);
    for (const auto& [name, feed] : topic->feeds) {
      for (const std::shared_ptr<StoredMessage>& message : next->messages) feed->state.Add(message);
      Finish(feed.get(), wakes);
    }
    if (topic->proto.has_message_retention_duration()) {
      topic->retained.insert(topic->retained.end(), next->messages.begin(), next->messages.end());
      for (const auto& each : next->messages) journal_.Retained(topic_name, each->sequence, true);
    }
    for (auto& [name, snapshot] : snapshots_) {
      if (snapshot.proto.topic() != topic_name) continue;
      snapshot.unacked.insert(snapshot.unacked.end(), next->messages.begin(), next->messages.end());
      for (const auto& each : next->messages) journal_.SnapshotHas(name, each->sequence);
    }
  }
}

void Broker::DeliverAll(Topic* topic, absl::Time until, WakeList* wakes) {
  for (const auto& messages : topic->undelivered) {
    if (messages->accepted <= until) messages->due = true;
  }
  DeliverDue(topic, wakes);
}

void Broker::Deliver(const std::shared_ptr<Undelivered>& messages) {
  WakeList wakes;
  {
    const Change change(this);
    messages->due = true;
    if (const auto topic = topics_.find(messages->topic); topic != topics_.end()) {
      DeliverDue(&topic->second, &wakes);
    }
  }
  for (const auto& listener : wakes) listener->Wake();
}

void Broker::DeliverAccepted() {
  WakeList wakes;
  {
    const Change change(this);
    for (auto& [name, topic] : topics_) DeliverAll(&topic, absl::InfiniteFuture(), &wakes);
  }
  for (const auto& listener : wakes) listener->Wake();
}

void Broker::Tick() {
  WakeList wakes;
  {
    const Change change(this);
    const absl::Time now = clock_();
    for (auto& [name, topic] : topics_) {
      DeliverAll(&topic, now - kAnswerPatience, &wakes);
      const absl::Time oldest = now - ToDuration(topic.proto.message_retention_duration());
      while (!topic.retained.empty() && topic.retained.front()->published <= oldest) {
        journal_.Retained(name, topic.retained.front()->sequence, false);
        topic.retained.pop_front();
      }
    }
    for (const auto& [name, feed] : feeds_) {
      if (feed->state.next_tick() > now) continue;
      feed->state.Tick(now);
      Finish(feed.get(), &wakes);
    }
    for (auto it = snapshots_.begin(); it != snapshots_.end();) {
      if (it->second.expires > now) {
        ++it;
        continue;
      }
      journal_.SnapshotDeleted(it->first);
      it = snapshots_.erase(it);
    }
  }
  for (const auto& listener : wakes) listener->Wake();
}

void Broker::WakeAll() {
  WakeList wakes;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    for (const auto& [name, feed] : feeds_) {
      for (const auto& [id, listener] : feed->streams) wakes.push_back(listener);
      std::move(feed->pulls.begin(), feed->pulls.end(), std::back_inserter(wakes));
      feed->pulls.clear();
    }
  }
  for (const auto& listener : wakes) listener->Wake();
}

// ---- messages ----

absl::StatusOr<pb::PublishResponse> Broker::Publish(const pb::PublishRequest& request) {
  auto accepted = Accept(request);
  if (!accepted.ok()) return accepted.status();
  Deliver(accepted->messages);
  return std::move(accepted->response);
}

absl::StatusOr<Broker::Accepted> Broker::Accept(const pb::PublishRequest& request) {
  if (auto s = CheckPublish(request); !s.ok()) return s;
  auto messages = MakeStoredMessages(request.messages());
  pb::SchemaSettings settings;
  {
    const Change change(this);
    Topic* topic = TakeTopic(request.topic());
    if (topic == nullptr || !topic->proto.has_schema_settings()) {
      return Take(request, topic, std::move(messages));
    }
    settings = topic->proto.schema_settings();
  }
  auto marked = request.messages();
  if (auto s = schemas_.CheckAndMark(settings, &marked); !s.ok()) return s;
  messages = MakeStoredMessages(marked);
  const Change change(this);
  return Take(request, TakeTopic(request.topic()), std::move(messages));
}

absl::StatusOr<Broker::Accepted> Broker::Take(
    const pb::PublishRequest& request, Topic* topic,
    std::vector<std::shared_ptr<StoredMessage>> messages) {
  if (topic == nullptr) return NotFound(request.topic());
  // CheckPublish() has seen that there are messages, and that all have the same key.
  if (auto s = publish_quotas_.Take(request.topic(), request.messages(0).ordering_key(),
                                    request.ByteSizeLong(), request.messages_size(), clock_());
      !s.ok()) {
    return s;
  }
  Accepted accepted;
  accepted.messages = Enqueue(topic, std::move(messages));
  accepted.response.mutable_message_ids()->Reserve(request.messages_size());
  for (const auto& message : accepted.messages->messages) {
    accepted.response.add_message_ids(MessageId(message->sequence));
  }
  return accepted;
}

int64_t Broker::messages_published() {
  const std::lock_guard<std::mutex> lock(mu_);
  return published_;
}

absl::StatusOr<std::vector<LeasedMessage>> Broker::Pull(const pb::PullRequest& request,
                                                        const std::shared_ptr<Listener>& waiter) {
  if (auto s = CheckPull(request); !s.ok()) return s;
  const auto feed = LookUp(request.subscription());
  if (!feed.ok()) return feed.status();
  using Deliveries = std::vector<LeasedMessage>;
  return With(*feed, [&](Subscription* state, absl::Time now) -> absl::StatusOr<Deliveries> {
    if (state->config().detached()) return Detached(request.subscription());
    Deliveries deliveries = state->Pull(request.max_messages(), now);
    if (deliveries.empty() && waiter != nullptr) (*feed)->pulls.push_back(waiter);
    return deliveries;
  });
}

absl::Status Broker::Acknowledge(const pb::AcknowledgeRequest& request) {
  if (auto s = CheckAcknowledge(request); !s.ok()) return s;
  const auto feed = LookUp(request.subscription());
  if (!feed.ok()) return feed.status();
  const std::vector<absl::string_view> ids(request.ack_ids().begin(), request.ack_ids().end());
  return With(*feed, [&](Subscription* state, absl::Time) -> absl::Status {
    if (!state->config().enable_exactly_once_delivery()) {
      if (auto s = CheckForm(ids); !s.ok()) return s;
    }
    return AckFailureStatus(FailuresOf(state->Acknowledge(ids)));
  });
}

absl::Status Broker::ModifyAckDeadline(const pb::ModifyAckDeadlineRequest& request) {
  if (auto s = CheckModifyAckDeadline(request); !s.ok()) return s;
  const auto feed = LookUp(request.subscription());
  if (!feed.ok()) return feed.status();
  std::vector<std::pair<absl::string_view, int>> changes;
  changes.reserve(static_cast<size_t>(request.ack_ids_size()));
  for (const std::string& id : request.ack_ids()) {
    changes.emplace_back(id, request.ack_deadline_seconds());
  }
  return With(*feed, [&](Subscription* state, absl::Time now) -> absl::Status {
    if (!state->config().enable_exactly_once_delivery()) {
      if (auto s = CheckForm(request.ack_ids()); !s.ok()) return s;
    }
    return AckFailureStatus(FailuresOf(state->ModifyAckDeadline(changes, now)));
  });
}

absl::StatusOr<Broker::StreamHandle> Broker::OpenStream(const pb::StreamingPullRequest& request,
                                                        std::shared_ptr<Listener> listener) {
  const std::lock_guard<std::mutex> lock(mu_);
  const auto feed = FindFeed(request.subscription());
  if (!feed.ok()) return feed.status();
  const FlowControl flow_control{request.max_outstanding_messages(),
                                 request.max_outstanding_bytes()};
  const StreamId id =
      (*feed)->state.OpenStream(flow_control, absl::Seconds(request.stream_ack_deadline_seconds()));
  (*feed)->streams.emplace(id, std::move(listener));
  return StreamHandle{*feed, id};
}

void Broker::CloseStream(const StreamHandle& stream) {
  With(stream.feed, [&](Subscription* state, absl::Time) {
    state->CloseStream(stream.id, options_.release_on_disconnect);
    stream.feed->streams.erase(stream.id);
    return true;
  });
}

void Broker::SetStreamDeadline(const StreamHandle& stream, int seconds) {
  const std::lock_guard<std::mutex> lock(mu_);
  stream.feed->state.SetStreamDeadline(stream.id, absl::Seconds(seconds));
}

absl::StatusOr<Broker::StreamBatch> Broker::TakeFromStream(const StreamHandle& stream) {
  const std::lock_guard<std::mutex> lock(mu_);
  const pb::Subscription& config = stream.feed->state.config();
  if (stream.feed->deleted) return NotFound(config.name());
  if (config.detached()) return Detached(config.name());
  StreamBatch batch;
  batch.exactly_once = config.enable_exactly_once_delivery();
  batch.ordered = config.enable_message_ordering();
  batch.deliveries = stream.feed->state.Take(stream.id, clock_());
  return batch;
}

void Broker::GiveBack(const StreamHandle& stream, const std::vector<LeasedMessage>& deliveries) {
  With(stream.feed, [&](Subscription* state, absl::Time) {
    state->GiveBack(deliveries);
    return true;
  });
}

AckOutcome Broker::AcknowledgeOnStream(const StreamHandle& stream,
                                       const std::vector<absl::string_view>& ids) {
  return With(stream.feed,
              [&](Subscription* state, absl::Time) { return state->Acknowledge(ids); });
}

AckOutcome Broker::ModifyOnStream(const StreamHandle& stream,
                                  const std::vector<std::pair<absl::string_view, int>>& changes) {
  return With(stream.feed, [&](Subscription* state, absl::Time now) {
    return state->ModifyAckDeadline(changes, now);
  });
}

std::vector<SubscriptionStats> Broker::Stats() {
  std::vector<SubscriptionStats> all;
  const std::lock_guard<std::mutex> lock(mu_);
  for (const auto& [name, feed] : feeds_) {
    all.push_back({name, static_cast<int64_t>(feed->streams.size()), feed->state.counters()});
  }
  return all;
}

}  // namespace postbox::emulator
