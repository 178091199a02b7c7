// The guarantees of a subscription under random streams, pulls, acks, nacks, deadlines and broken
// connections:
// - No message is lost: in the end every message is acked.
// - No message of a key is skipped: after a message its successor comes, or an earlier one.
// - A stream never holds more than its flow control allows.
// - Under exactly-once delivery an acked message is never delivered again.
// The random numbers are the same in each run, so a failure can be reproduced.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "worker/emulator/subscription/subscription.h"

namespace postbox::emulator {
namespace {

struct Shape {
  bool ordered;
  bool exactly_once;
  bool retry_policy;
  bool deliver_twice;
  bool retain_acked;
};

class Simulation {
 public:
  Simulation(const Shape& shape, unsigned seed) : shape_(shape), random_(seed) {
    google::pubsub::v1::Subscription config;
    config.set_name("projects/p/subscriptions/sub");
    config.set_ack_deadline_seconds(10);
    config.set_enable_message_ordering(shape.ordered);
    config.set_enable_exactly_once_delivery(shape.exactly_once);
    config.set_retain_acked_messages(shape.retain_acked);
    config.mutable_message_retention_duration()->set_seconds(86400);
    if (shape.retry_policy) {
      config.mutable_retry_policy()->mutable_minimum_backoff()->set_seconds(1);
      config.mutable_retry_policy()->mutable_maximum_backoff()->set_seconds(8);
    }
    sub_ = std::make_unique<Subscription>(config, 1, shape.deliver_twice,
                                          [](const std::string&) { return true; });
  }

  void Run(int steps) {
    for (int step = 0; step < steps && !::testing::Test::HasFailure(); ++step) Step();
    // At the end one consumer acks all messages.
    for (int round = 0; sub_->counters().backlog + sub_->counters().leased > 0; ++round) {
      ASSERT_LT(round, 10'000) << "the subscription does not run empty";
      now_ += absl::Seconds(10);
      sub_->Tick(now_);
      for (const LeasedMessage& delivery : Record(sub_->Pull(100, now_))) Acknowledge({delivery});
    }
    EXPECT_EQ(acked_.size(), static_cast<size_t>(last_sequence_));
  }

 private:
  int Roll(int sides) { return std::uniform_int_distribution<int>(0, sides - 1)(random_); }

  void Step() {
    switch (Roll(10)) {
      case 0:
      case 1:
        for (int i = Roll(5); i >= 0; --i) Publish();
        break;
      case 2:
        if (streams_.size() < 3) {
          const int64_t most = Roll(2) == 0 ? 0 : 1 + Roll(8);
          streams_[sub_->OpenStream({most, 0}, absl::Seconds(10 + Roll(20)))] = most;
        }
        break;
      case 3:
        if (!streams_.empty() && Roll(4) == 0) {
          const auto stream = PickStream();
          sub_->CloseStream(stream, Roll(2) == 0);
          streams_.erase(stream);
        }
        break;
      case 4:
      case 5:
        if (!streams_.empty()) {
          const auto stream = PickStream();
          const bool expected = sub_->HasWork(stream);
          auto deliveries = sub_->Take(stream, now_);
          EXPECT_EQ(expected, !deliveries.empty());
          const int64_t most = streams_[stream];
          EXPECT_TRUE(most == 0 || static_cast<int64_t>(deliveries.size()) <= most);
          if (Roll(6) == 0) {
            sub_->GiveBack(deliveries);
          } else {
            Record(deliveries);
          }
        }
        break;
      case 6:
        Record(sub_->Pull(1 + Roll(4), now_));
        break;
      case 7:
      case 8:
        AckSome();
        break;
      default:
        now_ += absl::Seconds(Roll(6));
        sub_->Tick(now_);
        break;
    }
  }

  StreamId PickStream() {
    return std::next(streams_.begin(), Roll(static_cast<int>(streams_.size())))->first;
  }

  void Publish() {
    google::pubsub::v1::PubsubMessage proto;
    proto.set_data("x");
    if (Roll(4) != 0) proto.set_ordering_key("k" + std::to_string(Roll(3)));
    auto message = MakeStoredMessage(proto);
    Stamp(++last_sequence_, "id", now_, message.get());
    position_[message->sequence] = published_[message->ordering_key]++;
    sub_->Add(message);
  }

  std::vector<LeasedMessage> Record(std::vector<LeasedMessage> deliveries) {
    for (const LeasedMessage& delivery : deliveries) {
      const uint64_t sequence = delivery.message->sequence;
      if (shape_.exactly_once && !shape_.deliver_twice) {
        EXPECT_FALSE(acked_.contains(sequence)) << "acked and delivered again";
      }
      const std::string& key = delivery.message->ordering_key;
      if (shape_.ordered && !key.empty()) {
        // `seen_` is the last position that may come next.
        EXPECT_LE(position_[sequence], seen_[key]) << "skipped within key " << key;
        seen_[key] = position_[sequence] + 1;
      }
      held_.push_back(delivery);
    }
    return deliveries;
  }

  // Acks, nacks or extends some of the deliveries so far, current or stale.
  void AckSome() {
    std::shuffle(held_.begin(), held_.end(), random_);
    std::vector<LeasedMessage> some;
    for (int i = Roll(6); i >= 0 && !held_.empty(); --i) {
      some.push_back(held_.back());
      held_.pop_back();
    }
    const int what = Roll(4);
    if (what < 2) {
      Acknowledge(some);
      return;
    }
    std::vector<std::string> ids;
    for (const LeasedMessage& delivery : some) {
      ids.push_back(FormatAckId(delivery.ack_id));
      held_.push_back(delivery);
    }
    std::vector<std::pair<absl::string_view, int>> changes;
    for (const std::string& id : ids) changes.emplace_back(id, what == 2 ? 0 : 10 + Roll(30));
    sub_->ModifyAckDeadline(changes, now_);
  }

  void Acknowledge(const std::vector<LeasedMessage>& deliveries) {
    std::vector<std::string> ids;
    for (const LeasedMessage& delivery : deliveries) ids.push_back(FormatAckId(delivery.ack_id));
    const std::vector<absl::string_view> views(ids.begin(), ids.end());
    for (const AckId& id : sub_->Acknowledge(views).done) acked_.insert(id.sequence);
  }

  const Shape shape_;
  std::mt19937 random_;
  std::unique_ptr<Subscription> sub_;
  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  uint64_t last_sequence_ = 0;
  std::map<std::string, int> published_;  // messages of a key so far
  std::map<uint64_t, int> position_;      // of a message within its key
  std::map<std::string, int> seen_;
  std::map<StreamId, int64_t> streams_;  // with max_outstanding_messages
  std::vector<LeasedMessage> held_;
  std::set<uint64_t> acked_;
};

TEST(SubscriptionUnderRandomUse, KeepsItsPromises) {
  for (int bits = 0; bits < 32; ++bits) {
    const Shape shape{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0,
                      (bits & 16) != 0};
    for (unsigned seed = 1; seed <= 5; ++seed) {
      SCOPED_TRACE("shape " + std::to_string(bits) + " seed " + std::to_string(seed));
      Simulation(shape, seed).Run(600);
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace postbox::emulator
