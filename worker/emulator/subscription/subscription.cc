#include "worker/emulator/subscription/subscription.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"

namespace postbox::emulator {
namespace {

namespace pb = google::pubsub::v1;

std::optional<Filter> FilterOf(const pb::Subscription& config) {
  if (config.filter().empty()) return std::nullopt;
  return Filter::Parse(config.filter()).value();  // it was checked
}

bool FilterMatches(const std::optional<Filter>& filter, const StoredMessage& message) {
  return !filter || filter->Matches(message.Parse());
}

absl::string_view TextOf(absl::string_view id) { return id; }
absl::string_view TextOf(const std::pair<absl::string_view, int>& change) { return change.first; }

// The ack ids of a request by their messages: their order within the request does not matter, and
// the first nack of a key takes the later messages back, which are not nacked themselves then.
template <class Item>
std::vector<std::pair<AckId, const Item*>> BySequence(const std::vector<Item>& items,
                                                      AckOutcome* outcome) {
  std::vector<std::pair<AckId, const Item*>> parsed;
  parsed.reserve(items.size());
  for (const Item& item : items) {
    AckId id;
    if (ParseAckId(TextOf(item), &id)) {
      parsed.emplace_back(id, &item);
    } else {
      outcome->stale.emplace_back(TextOf(item));
    }
  }
  std::stable_sort(parsed.begin(), parsed.end(), [](const auto& a, const auto& b) {
    return a.first.sequence < b.first.sequence;
  });
  return parsed;
}

absl::Duration Backoff(const pb::Subscription& config, int failures) {
  if (!config.has_retry_policy()) return absl::ZeroDuration();
  const absl::Duration least = ToDuration(config.retry_policy().minimum_backoff());
  const absl::Duration most = ToDuration(config.retry_policy().maximum_backoff());
  const int doublings = std::min(failures - 1, 20);
  return std::min(most, least * static_cast<double>(int64_t{1} << doublings));
}

// When the oldest message is to be dropped.
absl::Time RetentionEnd(const pb::Subscription& config, const Entries& entries) {
  const Entry* oldest = entries.oldest();
  if (oldest == nullptr) return absl::InfiniteFuture();
  return oldest->message->published +
         std::max(ToDuration(config.message_retention_duration()),
                  ToDuration(config.topic_message_retention_duration()));
}

}  // namespace

Subscription::Subscription(pb::Subscription config, uint64_t incarnation, bool deliver_twice,
                           DeadLetterQueue::TopicExists topic_exists)
    : config_(std::move(config)),
      filter_(FilterOf(config_)),
      incarnation_(incarnation),
      queues_(config_.enable_message_ordering(), deliver_twice),
      dead_letters_(std::move(topic_exists)) {
  entries().RetainAcked(config_.retain_acked_messages());
}

void Subscription::Configure(pb::Subscription config) {
  config_ = std::move(config);
  entries().RetainAcked(config_.retain_acked_messages());
}

void Subscription::Detach() {
  queues_.Rebuild([](const StoredMessage&) { return true; });
  entries().Clear();
  config_.set_detached(true);
}

SubscriptionCounters Subscription::counters() const {
  SubscriptionCounters counters = counters_;
  counters.leased = static_cast<int64_t>(queues_.leases().size());
  counters.backlog = static_cast<int64_t>(queues_.entries().unacked()) - counters.leased;
  return counters;
}

// ---- delivery ----

void Subscription::Add(StoredMessagePtr message) {
  if (FilterMatches(filter_, *message)) queues_.Enqueue(entries().Append(std::move(message)));
}

StreamId Subscription::OpenStream(FlowControl flow_control, absl::Duration ack_deadline) {
  return queues_.streams().Open(flow_control, ack_deadline);
}

void Subscription::SetStreamDeadline(StreamId id, absl::Duration ack_deadline) {
  StreamState* stream = queues_.streams().Find(id);
  if (stream != nullptr) stream->ack_deadline = ack_deadline;
}

std::vector<LeasedMessage> Subscription::Take(StreamId id, absl::Time now) {
  StreamState* stream = queues_.streams().Find(id);
  if (stream == nullptr) return {};
  return Deliver(stream->Budget(), {id, stream, now + stream->ack_deadline});
}

std::vector<LeasedMessage> Subscription::Pull(int max_messages, absl::Time now) {
  DeliveryBudget budget;
  budget.messages = std::min(max_messages, kMaxPullMessages);
  return Deliver(budget, {queues_.streams().NewOwner(), nullptr,
                          now + absl::Seconds(config_.ack_deadline_seconds())});
}

std::vector<LeasedMessage> Subscription::Deliver(DeliveryBudget budget,
                                                 const Recipient& recipient) {
  const std::vector<Entry*> taken = queues_.Take(budget, recipient);
  std::vector<LeasedMessage> deliveries;
  deliveries.reserve(taken.size());
  for (Entry* entry : taken) {
    if (entry->deliveries++ > 0) ++counters_.redelivered;
    ++counters_.delivered;
    const int attempt = config_.has_dead_letter_policy() ? entry->failures + 1 : 0;
    deliveries.push_back(
        {entry->message, {incarnation_, entry->sequence(), entry->lease}, attempt});
  }
  return deliveries;
}

void Subscription::GiveBack(const std::vector<LeasedMessage>& deliveries) {
  for (auto delivery = deliveries.rbegin(); delivery != deliveries.rend(); ++delivery) {
    Entry* entry = Current(delivery->ack_id);
    if (entry == nullptr || entry->state != Entry::State::kLeased) continue;
    if (--entry->deliveries > 0) --counters_.redelivered;
    --counters_.delivered;
    queues_.UndoLease(entry);
  }
}

// ---- acknowledgement ----

Entry* Subscription::Current(const AckId& id) const {
  if (id.subscription != incarnation_) return nullptr;
  Entry* entry = queues_.entries().Find(id.sequence);
  if (entry == nullptr || entry->lease != id.lease) return nullptr;
  if (entry->state == Entry::State::kLeased) return entry;
  // A late ack counts like one in time if the message was not delivered again meanwhile. It does
  // not count where that would break a guarantee.
  const bool late_is_fine = entry->state != Entry::State::kAcked && entry->key == nullptr &&
                            !config_.enable_exactly_once_delivery();
  return late_is_fine ? entry : nullptr;
}

AckOutcome Subscription::Acknowledge(const std::vector<absl::string_view>& ack_ids) {
  AckOutcome result;
  const bool exactly_once = config_.enable_exactly_once_delivery();
  for (const auto& [id, text] : BySequence(ack_ids, &result)) {
    Entry* entry = Current(id);
    if (entry == nullptr && exactly_once) {
      result.stale.emplace_back(*text);
    } else if (entry != nullptr && exactly_once && entry->key != nullptr &&
               entry->key->HasUnackedBefore(*entry)) {
      result.unordered.emplace_back(*text);
    } else {
      if (entry != nullptr) {
        ++counters_.acked;
        queues_.Ack(entry);
      }
      result.done.push_back(id);
    }
  }
  return result;
}

AckOutcome Subscription::ModifyAckDeadline(
    const std::vector<std::pair<absl::string_view, int>>& changes, absl::Time now) {
  AckOutcome result;
  for (const auto& [id, change] : BySequence(changes, &result)) {
    const auto& [text, seconds] = *change;
    Entry* entry = Current(id);
    const bool leased = entry != nullptr && entry->state == Entry::State::kLeased;
    if (!leased && config_.enable_exactly_once_delivery()) {
      result.stale.emplace_back(text);
      continue;
    }
    result.done.push_back(id);
    if (!leased) continue;
    if (seconds == 0) {
      ++counters_.nacked;
      Fail(entry, now);
    } else {
      queues_.leases().Extend(entry, now + absl::Seconds(seconds));
    }
  }
  return result;
}

void Subscription::Fail(Entry* entry, absl::Time now) {
  ++entry->failures;
  entries().Touch(*entry);
  if (dead_letters_.Take(config_, *entry->message, entry->failures)) {
    ++counters_.dead_lettered;
    queues_.EndLease(entry);
    queues_.Drop(entry);
    return;
  }
  const absl::Duration backoff = Backoff(config_, entry->failures);
  queues_.EndLease(entry, backoff > absl::ZeroDuration() ? now + backoff : absl::InfinitePast());
}

// ---- time ----

absl::Time Subscription::next_tick() const {
  return std::min({RetentionEnd(config_, queues_.entries()), queues_.leases().first_end(),
                   queues_.next_resume()});
}

void Subscription::Tick(absl::Time now) {
  while (RetentionEnd(config_, entries()) <= now) queues_.Drop(entries().oldest());
  for (Entry* entry : queues_.leases().EndedBy(now)) {
    // Some are taken back by an earlier one of their key.
    if (entry->state != Entry::State::kLeased) continue;
    ++counters_.expired;
    Fail(entry, now);
  }
  queues_.Resume(now);
}

// ---- seek and restart ----

void Subscription::Seek(absl::Time time, const std::deque<StoredMessagePtr>& retained) {
  for (const StoredMessagePtr& message : retained) {
    if (message->published >= time && FilterMatches(filter_, *message)) {
      entries().Restore(message, {.acked = true});
    }
  }
  queues_.Rebuild([time](const StoredMessage& message) { return message.published < time; });
}

void Subscription::Seek(const std::vector<StoredMessagePtr>& unacked) {
  absl::flat_hash_set<uint64_t> wanted;
  for (const StoredMessagePtr& message : unacked) {
    if (!FilterMatches(filter_, *message)) continue;  // the snapshot may be of another subscription
    wanted.insert(message->sequence);
    entries().Restore(message, {.acked = true});
  }
  queues_.Rebuild([&wanted](const StoredMessage& message) {  //
    return !wanted.contains(message.sequence);
  });
}

void Subscription::Recover(StoredMessagePtr message, EntryState state) {
  // An earlier message of the key is delivered again, and with it all later ones.
  if (!config_.enable_exactly_once_delivery() && queues_.HasKey(message->ordering_key)) {
    state.acked = false;
  }
  Entry* entry = entries().Restore(std::move(message), state);
  if (!state.acked) queues_.Enqueue(entry);
}

}  // namespace postbox::emulator
