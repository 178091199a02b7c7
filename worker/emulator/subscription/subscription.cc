// Delivery and acknowledgement. The queues are in subscription_queues.cc.
#include "worker/emulator/subscription/subscription.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "worker/emulator/rules/service_limits.h"

namespace postbox::emulator {
namespace {

namespace pb = google::pubsub::v1;

// Adds the attributes that tell a consumer of a dead-letter topic where a message comes from.
pb::PubsubMessage MakeDeadLetter(const StoredMessage& message, absl::string_view subscription,
                                 int attempts) {
  pb::PubsubMessage copy = message.Parse();
  const std::vector<absl::string_view> parts = absl::StrSplit(subscription, '/');
  constexpr absl::string_view kPrefix = "CloudPubSubDeadLetterSource";
  auto& attributes = *copy.mutable_attributes();
  attributes[absl::StrCat(kPrefix, "DeliveryCount")] = absl::StrCat(attempts);
  attributes[absl::StrCat(kPrefix, "Subscription")] = std::string(parts.back());
  attributes[absl::StrCat(kPrefix, "SubscriptionProject")] =
      parts.size() > 1 ? std::string(parts[1]) : "";
  attributes[absl::StrCat(kPrefix, "TopicPublishTime")] =
      absl::FormatTime(absl::RFC3339_full, message.published, absl::UTCTimeZone());
  return copy;
}

std::optional<Filter> FilterOf(const pb::Subscription& config) {
  if (config.filter().empty()) return std::nullopt;
  return Filter::Parse(config.filter()).value();  // it was checked
}

}  // namespace

bool Subscription::Budget::Admits(const Entry& entry) const {
  const auto size = static_cast<int64_t>(entry.message->bytes());
  return messages > 0 && (flow_bytes >= size || stream_empty) &&
         (response_bytes >= size || response_empty);
}

void Subscription::Budget::Spend(const Entry& entry) {
  const auto size = static_cast<int64_t>(entry.message->bytes());
  --messages;
  flow_bytes -= size;
  response_bytes -= size;
  stream_empty = false;
  response_empty = false;
}

Subscription::Subscription(pb::Subscription config, uint64_t incarnation, bool deliver_twice,
                           TopicExists topic_exists)
    : config_(std::move(config)),
      filter_(FilterOf(config_)),
      incarnation_(incarnation),
      deliver_twice_(deliver_twice),
      topic_exists_(std::move(topic_exists)) {}

// ---- delivery ----

void Subscription::Add(StoredMessagePtr message) {
  if (!FilterMatches(*message)) return;
  const uint64_t sequence = message->sequence;
  auto entry = std::make_unique<Entry>();
  entry->message = std::move(message);
  Enqueue(entry.get());
  ++unacked_;
  Touch(*entry);
  entries_.emplace_hint(entries_.end(), sequence, std::move(entry));
}

void Subscription::Enqueue(Entry* entry) {
  const std::string& name = entry->message->ordering_key;
  entry->state = State::kWaiting;
  if (!ordered() || name.empty()) {
    entry->ready_at = ready_.insert(ready_.end(), entry);
    return;
  }
  std::unique_ptr<Key>& key = keys_[name];
  if (key == nullptr) {
    key = std::make_unique<Key>();
    key->name = name;
  }
  entry->key = key.get();
  key->entries.push_back(entry);
  Settle(key.get());
}

Subscription::StreamId Subscription::OpenStream(FlowControl flow_control,
                                                absl::Duration ack_deadline) {
  const StreamId id = ++last_stream_;
  auto stream = std::make_unique<Stream>();
  stream->flow_control = flow_control;
  stream->ack_deadline = ack_deadline;
  streams_.emplace(id, std::move(stream));
  return id;
}

void Subscription::SetStreamDeadline(StreamId id, absl::Duration ack_deadline) {
  if (auto found = streams_.find(id); found != streams_.end()) {
    found->second->ack_deadline = ack_deadline;
  }
}

void Subscription::CloseStream(StreamId id, bool give_back) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  const std::unique_ptr<Stream> stream = std::move(found->second);
  streams_.erase(found);
  while (!stream->ready_keys.empty()) Unplace(stream->ready_keys.front());
  if (!give_back) return;
  std::vector<uint64_t> held;
  for (const auto& [end, sequence] : leases_) {
    if (entries_.at(sequence)->stream == id) held.push_back(sequence);
  }
  std::sort(held.begin(), held.end());
  for (const uint64_t sequence : held) {
    Entry* entry = entries_.at(sequence).get();
    if (entry->state != State::kLeased) continue;  // taken back by an earlier one of its key
    EndLease(entry);
    Wait(entry, absl::InfinitePast());
  }
}

Subscription::Budget Subscription::StreamBudget(const Stream& stream) const {
  Budget budget;
  budget.messages = kMaxPullMessages;
  budget.response_bytes = static_cast<int64_t>(kMaxResponseBytes);
  budget.stream_empty = stream.messages == 0;
  const FlowControl& limits = stream.flow_control;
  if (limits.max_messages > 0) {
    budget.messages = std::min(budget.messages, limits.max_messages - stream.messages);
  }
  if (limits.max_bytes > 0) budget.flow_bytes = limits.max_bytes - stream.bytes;
  return budget;
}

Subscription::Candidate Subscription::Next(const Stream* stream) const {
  Key* key = nullptr;
  if (stream != nullptr && !stream->ready_keys.empty()) {
    key = stream->ready_keys.front();
  } else if (!ready_keys_.empty()) {
    key = ready_keys_.front();
  }
  if (key != nullptr && (keys_first_ || ready_.empty())) return {key, key->entries[key->cursor]};
  if (!ready_.empty()) return {nullptr, ready_.front()};
  return {};
}

bool Subscription::HasWork(StreamId id) const {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return false;
  const Candidate next = Next(found->second.get());
  return next.entry != nullptr && StreamBudget(*found->second).Admits(*next.entry);
}

std::vector<LeasedMessage> Subscription::Take(StreamId id, absl::Time now) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return {};
  Stream* stream = found->second.get();
  return TakeWithin(StreamBudget(*stream), id, stream, now + stream->ack_deadline);
}

std::vector<LeasedMessage> Subscription::Pull(int max_messages, absl::Time now) {
  Budget budget;
  budget.messages = std::min(max_messages, kMaxPullMessages);
  budget.response_bytes = static_cast<int64_t>(kMaxResponseBytes);
  // Each Pull is an owner of its own, which does not come again. So the later messages of its keys
  // wait for this batch.
  return TakeWithin(budget, ++last_stream_, nullptr,
                    now + absl::Seconds(config_.ack_deadline_seconds()));
}

std::vector<LeasedMessage> Subscription::TakeWithin(Budget budget, StreamId id, Stream* stream,
                                                    absl::Time lease_end) {
  std::vector<LeasedMessage> deliveries;
  for (;;) {
    const Candidate next = Next(stream);
    if (next.entry == nullptr || !budget.Admits(*next.entry)) return deliveries;
    keys_first_ = !keys_first_;
    if (next.key == nullptr) {
      ready_.pop_front();
      budget.Spend(*next.entry);
      deliveries.push_back(Lease(next.entry, id, stream, lease_end));
      continue;
    }
    Key* key = next.key;
    key->owner = id;
    while (key->cursor < key->entries.size() && budget.Admits(*key->entries[key->cursor])) {
      Entry* entry = key->entries[key->cursor++];
      ++key->leased;
      budget.Spend(*entry);
      deliveries.push_back(Lease(entry, id, stream, lease_end));
    }
    Settle(key);
  }
}

LeasedMessage Subscription::Lease(Entry* entry, StreamId id, Stream* stream, absl::Time lease_end) {
  entry->state = State::kLeased;
  entry->lease = ++last_lease_;
  entry->until = lease_end;
  entry->stream = id;
  if (entry->deliveries++ > 0) ++counters_.redelivered;
  ++counters_.delivered;
  leases_.emplace(lease_end, entry->message->sequence);
  if (stream != nullptr) {
    ++stream->messages;
    stream->bytes += static_cast<int64_t>(entry->message->bytes());
  }
  const int attempt = config_.has_dead_letter_policy() ? entry->failures + 1 : 0;
  return {entry->message, {incarnation_, entry->message->sequence, entry->lease}, attempt};
}

void Subscription::EndLease(Entry* entry) {
  leases_.erase({entry->until, entry->message->sequence});
  entry->state = State::kWaiting;
  if (auto found = streams_.find(entry->stream); found != streams_.end()) {
    --found->second->messages;
    found->second->bytes -= static_cast<int64_t>(entry->message->bytes());
  }
  entry->stream = 0;
  if (entry->key != nullptr && --entry->key->leased == 0) entry->key->owner = 0;
}

void Subscription::GiveBack(const std::vector<LeasedMessage>& deliveries) {
  // In reverse order, so that each message with a key is the last leased one of its key.
  for (auto delivery = deliveries.rbegin(); delivery != deliveries.rend(); ++delivery) {
    Entry* entry = Current(delivery->ack_id);
    if (entry == nullptr || entry->state != State::kLeased) continue;
    if (--entry->deliveries > 0) --counters_.redelivered;
    --counters_.delivered;
    EndLease(entry);
    entry->lease = 0;
    if (entry->key != nullptr) {
      Wait(entry, absl::InfinitePast());
    } else {
      entry->ready_at = ready_.insert(ready_.begin(), entry);
    }
  }
}

// ---- acknowledgement ----

Subscription::Entry* Subscription::Current(const AckId& id) const {
  if (id.subscription != incarnation_) return nullptr;
  const auto found = entries_.find(id.sequence);
  if (found == entries_.end()) return nullptr;
  Entry* entry = found->second.get();
  if (entry->lease != id.lease) return nullptr;
  if (entry->state == State::kLeased) return entry;
  // A late ack counts like one in time if the message was not delivered again meanwhile. It does
  // not count where that would break a guarantee.
  const bool late_is_fine =
      entry->state != State::kAcked && entry->key == nullptr && !exactly_once();
  return late_is_fine ? entry : nullptr;
}

bool Subscription::EarlierUnacked(const Entry& entry) const {
  for (const Entry* earlier : entry.key->entries) {
    if (earlier == &entry) return false;
    if (earlier->state != State::kAcked) return true;
  }
  return false;
}

AckOutcome Subscription::Acknowledge(const std::vector<absl::string_view>& ack_ids) {
  AckOutcome result;
  std::vector<std::pair<AckId, absl::string_view>> parsed;
  parsed.reserve(ack_ids.size());
  for (const absl::string_view text : ack_ids) {
    AckId id;
    if (ParseAckId(text, &id)) {
      parsed.emplace_back(id, text);
    } else {
      result.stale.emplace_back(text);
    }
  }
  // The order of the ids within a request does not matter.
  std::stable_sort(parsed.begin(), parsed.end(), [](const auto& a, const auto& b) {
    return a.first.sequence < b.first.sequence;
  });
  for (const auto& [id, text] : parsed) {
    Entry* entry = Current(id);
    if (entry == nullptr && exactly_once()) {
      result.stale.emplace_back(text);
    } else if (entry != nullptr && exactly_once() && entry->key != nullptr &&
               EarlierUnacked(*entry)) {
      result.unordered.emplace_back(text);
    } else {
      if (entry != nullptr) Ack(entry);
      result.done.push_back(id);
    }
  }
  return result;
}

void Subscription::Ack(Entry* entry) {
  Touch(*entry);
  ++counters_.acked;
  const bool again = deliver_twice_ && !entry->repeated;
  if (entry->state == State::kLeased) {
    EndLease(entry);
  } else if (entry->state == State::kSuspended) {
    suspended_.erase({entry->until, entry->message->sequence});
  } else {
    ready_.erase(entry->ready_at);
  }
  entry->lease = 0;
  if (entry->key == nullptr && again) {
    entry->repeated = true;
    Enqueue(entry);
    return;
  }
  entry->state = State::kAcked;
  --unacked_;
  if (entry->key != nullptr) {
    if (again) ++entry->key->to_repeat;
    Settle(entry->key);
  } else if (!config_.retain_acked_messages()) {
    entries_.erase(entry->message->sequence);
  }
}

AckOutcome Subscription::ModifyAckDeadline(
    const std::vector<std::pair<absl::string_view, int>>& changes, absl::Time now) {
  AckOutcome result;
  struct Change {
    AckId id;
    const std::pair<absl::string_view, int>* change;
  };
  std::vector<Change> parsed;
  parsed.reserve(changes.size());
  for (const auto& change : changes) {
    AckId id;
    if (ParseAckId(change.first, &id)) {
      parsed.push_back({id, &change});
    } else {
      result.stale.emplace_back(change.first);
    }
  }
  // The first nack of a key takes the later messages back. Then they are not nacked themselves.
  std::stable_sort(parsed.begin(), parsed.end(),
                   [](const Change& a, const Change& b) { return a.id.sequence < b.id.sequence; });
  for (const auto& [id, change] : parsed) {
    Entry* entry = Current(id);
    if (entry == nullptr || entry->state != State::kLeased) {
      if (exactly_once()) {
        result.stale.emplace_back(change->first);
      } else {
        result.done.push_back(id);
      }
      continue;
    }
    result.done.push_back(id);
    if (change->second == 0) {
      ++counters_.nacked;
      Fail(entry, now);
    } else {
      leases_.erase({entry->until, id.sequence});
      entry->until = now + absl::Seconds(change->second);
      leases_.emplace(entry->until, id.sequence);
    }
  }
  return result;
}

void Subscription::Fail(Entry* entry, absl::Time now) {
  Touch(*entry);
  EndLease(entry);
  ++entry->failures;
  if (ToDeadLetter(entry)) return;
  const absl::Duration backoff = Backoff(*entry);
  Wait(entry, backoff > absl::ZeroDuration() ? now + backoff : absl::InfinitePast());
}

bool Subscription::ToDeadLetter(Entry* entry) {
  if (!config_.has_dead_letter_policy()) return false;
  const pb::DeadLetterPolicy& policy = config_.dead_letter_policy();
  if (entry->failures < policy.max_delivery_attempts()) return false;
  // Without that topic the message stays here and is delivered again.
  if (!topic_exists_(policy.dead_letter_topic())) return false;
  ++counters_.dead_lettered;
  dead_letters_.push_back({policy.dead_letter_topic(),
                           MakeDeadLetter(*entry->message, config_.name(), entry->failures)});
  Wait(entry, absl::InfinitePast());
  Drop(entry);
  return true;
}

}  // namespace postbox::emulator
