// Requests to the emulator, in any order and with fields of any bytes: each is carried out or
// refused with a reason.
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/quiet_protobuf.h"
#include "worker/emulator/broker/broker.h"

using postbox::fuzz::Input;
namespace emulator = postbox::emulator;
namespace pb = google::pubsub::v1;

namespace {

constexpr char kTopic[] = "projects/p/topics/topic";
constexpr char kOtherTopic[] = "projects/p/topics/other";
constexpr char kSubscription[] = "projects/p/subscriptions/sub";
constexpr char kSnapshot[] = "projects/p/snapshots/snapshot";

// Fields from bytes in wire format, beside those that are set already.
template <class Message>
void Merge(std::string_view bytes, Message* message) {
  Message other;
  if (other.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) message->MergeFrom(other);
}

class Session {
 public:
  explicit Session(Input* input)
      : input_(*input),
        broker_([this] { return now_; }, {.deliver_twice = (input->Byte() & 1) != 0}) {
    for (const char* name : {kTopic, kOtherTopic}) {
      pb::Topic topic;
      topic.set_name(name);
      FUZZ_CHECK(broker_.topics()->Create(topic).ok(), name);
    }
    input_.Byte();
    CreateSubscription();
  }

  void Run() {
    for (int steps = 0; !input_.empty() && steps < 200; ++steps) {
      Step();
      for (const emulator::SubscriptionStats& stats : broker_.Stats()) {
        FUZZ_CHECK(stats.counters.backlog >= 0 && stats.counters.leased >= 0, stats.name);
      }
    }
  }

 private:
  void Step() {
    switch (input_.Byte() % 12) {
      case 0:
        return CreateSubscription();
      case 1:
        return UpdateSubscription();
      case 2:
      case 3:
        return Publish();
      case 4:
        return Pull();
      case 5:
        return Acknowledge();
      case 6:
        return ModifyAckDeadline();
      case 7:
        return Seek();
      case 8:
        now_ += absl::Milliseconds(input_.Integer() & 0xFFFFFFFFFF);
        return broker_.Tick();
      case 9:
        return Snapshot();
      case 10:
        return List();
      default:
        return Told(broker_.subscriptions()->Delete(kSubscription));
    }
  }

  static void Told(const absl::Status& status) {
    FUZZ_CHECK(status.ok() || !status.message().empty(), status.ToString());
  }

  void CreateSubscription() {
    pb::Subscription subscription;
    const std::uint8_t flags = input_.Byte();
    subscription.set_enable_message_ordering((flags & 1) != 0);
    subscription.set_enable_exactly_once_delivery((flags & 2) != 0);
    subscription.set_retain_acked_messages((flags & 4) != 0);
    if ((flags & 8) != 0) subscription.mutable_retry_policy();
    if ((flags & 16) != 0) {
      subscription.mutable_dead_letter_policy()->set_dead_letter_topic(kOtherTopic);
    }
    Merge(input_.Line(), &subscription);
    subscription.set_name(kSubscription);
    subscription.set_topic(kTopic);
    Told(broker_.subscriptions()->Create(subscription).status());
  }

  void UpdateSubscription() {
    pb::UpdateSubscriptionRequest request;
    const std::uint8_t flags = input_.Byte();
    Merge(input_.Line(), request.mutable_subscription());
    request.mutable_subscription()->set_name(kSubscription);
    int bit = 1;
    for (const char* path : {"ack_deadline_seconds", "retain_acked_messages",
                             "enable_exactly_once_delivery", "message_retention_duration",
                             "dead_letter_policy", "retry_policy", "expiration_policy"}) {
      if ((flags & bit) != 0) request.mutable_update_mask()->add_paths(path);
      bit *= 2;
    }
    Told(broker_.subscriptions()->Update(request).status());
  }

  void Publish() {
    pb::PublishRequest request;
    request.set_topic(kTopic);
    for (int count = 1 + input_.Byte() % 3; count > 0; --count) {
      pb::PubsubMessage* message = request.add_messages();
      message->set_data("x");
      Merge(input_.Line(), message);
    }
    const auto response = broker_.publishing()->Publish(request);
    Told(response.status());
    FUZZ_CHECK(!response.ok() || response->message_ids_size() == request.messages_size(),
               request.ShortDebugString());
  }

  void Pull() {
    pb::PullRequest request;
    request.set_subscription(kSubscription);
    request.set_max_messages(static_cast<int>(input_.Byte()) - 8);
    const auto pulled = broker_.pulling()->Pull(request, nullptr);
    Told(pulled.status());
    if (!pulled.ok()) return;
    FUZZ_CHECK(static_cast<int>(pulled->size()) <= request.max_messages(), "too many");
    for (const emulator::LeasedMessage& message : *pulled) {
      ack_ids_.push_back(emulator::FormatAckId(message.ack_id));
      FUZZ_CHECK(!message.message->Parse().message_id().empty(), ack_ids_.back());
    }
  }

  // One that was delivered, or any text.
  std::string AckId() {
    const std::uint8_t which = input_.Byte();
    if (ack_ids_.empty() || which == 255) return std::string(input_.Line());
    return ack_ids_[which % ack_ids_.size()];
  }

  void Acknowledge() {
    pb::AcknowledgeRequest request;
    request.set_subscription(kSubscription);
    for (int count = input_.Byte() % 4; count > 0; --count) request.add_ack_ids(AckId());
    Told(broker_.pulling()->Acknowledge(request));
  }

  void ModifyAckDeadline() {
    pb::ModifyAckDeadlineRequest request;
    request.set_subscription(kSubscription);
    for (int count = input_.Byte() % 4; count > 0; --count) request.add_ack_ids(AckId());
    request.set_ack_deadline_seconds(input_.Byte() * 3 - 3);
    Told(broker_.pulling()->ModifyAckDeadline(request));
  }

  void Seek() {
    pb::SeekRequest request;
    if ((input_.Byte() & 1) != 0) request.set_snapshot(kSnapshot);
    Merge(input_.Line(), &request);
    request.set_subscription(kSubscription);
    Told(broker_.snapshots()->Seek(request));
  }

  void Snapshot() {
    pb::CreateSnapshotRequest request;
    request.set_name(kSnapshot);
    request.set_subscription(kSubscription);
    Told(broker_.snapshots()->Create(request).status());
    if ((input_.Byte() & 1) != 0) Told(broker_.snapshots()->Delete(kSnapshot));
  }

  void List() {
    pb::ListSubscriptionsRequest request;
    Merge(input_.Line(), &request);
    Told(broker_.subscriptions()->List(request).status());
  }

  Input input_;
  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  emulator::Broker broker_;
  std::vector<std::string> ack_ids_;
};

}  // namespace

FUZZ(Input* input) {
  postbox::fuzz::QuietProtobuf();
  Session(input).Run();
}
