#include "worker/pubsub/pull/subscriber.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <random>
#include <utility>

#include "worker/pubsub/auth/authorizer.h"
#include "worker/pubsub/auth/credentials.h"
#include "worker/pubsub/event_loop.h"
#include "worker/pubsub/pull/ack_batcher.h"
#include "worker/pubsub/pull/ack_results.h"
#include "worker/pubsub/pull/ack_sender.h"
#include "worker/pubsub/pull/held_messages.h"
#include "worker/pubsub/pull/key_gate.h"
#include "worker/pubsub/pull/lease_keeper.h"
#include "worker/pubsub/pull/pull_stream.h"
#include "worker/pubsub/traces/messaging_spans.h"

namespace postbox::pubsub {
namespace {

using Clock = EventLoop::Clock;

// Each subscriber has one, which it keeps when the stream is opened again: the service sends the
// messages of an ordering key to one client.
std::string NewClientId() {
  std::random_device device;
  std::string id;
  for (int i = 0; i < 32; ++i) {
    if (i == 8 || i == 12 || i == 16 || i == 20) id += '-';
    id += "0123456789abcdef"[device() & 15];
  }
  return id;
}

// The part of the subscriber that lives on the loop's thread. It connects the stream, the messages
// that it has brought, their leases and their acks.
class SubscriberCore {
 public:
  SubscriberCore(EventLoop* loop, SubscriberOptions options, SubscriberCallbacks callbacks)
      : loop_(loop),
        options_(std::move(options)),
        callbacks_(std::move(callbacks)),
        held_(options_.max_outstanding_messages, options_.max_outstanding_bytes) {}

  bool Start(std::string* error);
  void Ack(const std::vector<uint64_t>& handles);
  void Nack(const std::vector<uint64_t>& handles);
  void StopPulling();
  // From now on `idle` is called whenever no message is unsettled.
  void Finish(std::function<void()> idle);
  void CancelAll();
  CredentialState Credential() const { return authorizer_->State(); }  // any thread

 private:
  using State = HeldMessage::State;

  void StartStream();
  void StartAcks(std::unique_ptr<AckSender::Stub> stub);
  void OnResponse(PullResponse response, bool first);
  void Report(const CallReport& call) {
    if (callbacks_.on_call) callbacks_.on_call(call);
  }
  void HandOn();
  std::optional<SpanLink> LinkOf(uint64_t handle) const;
  void AddReceiveSpan(const std::vector<ReceivedMessage>& messages) const;
  void Pump();

  void AddAck(int deadline_seconds, uint64_t handle, const HeldMessage& held,
              Clock::time_point now);
  void NackHeld(uint64_t handle, HeldMessage* held);
  void OnResult(uint64_t handle, int deadline_seconds, AckResult result);
  void Forget(uint64_t handle, Settlement settlement);
  void LoseWaiting(uint64_t handle);
  void NoteReturned(const HeldMessage& held, AckResult result);

  // Whether the lease of a message is to be extended.
  bool NeedsLease(uint64_t handle) const;
  void ExtendLeases();
  void ArmLeaseTimer();

  EventLoop* const loop_;
  const SubscriberOptions options_;
  const SubscriberCallbacks callbacks_;
  std::unique_ptr<Authorizer> authorizer_;
  std::unique_ptr<PullStream::Stub> stream_stub_;
  std::unique_ptr<PullStream> stream_;
  std::unique_ptr<AckSender> acks_;

  bool pulling_ = true;
  SubscriptionProperties properties_;
  HeldMessages held_;
  KeyGate gate_;
  LeaseKeeper leases_;
  EventLoop::TimerId lease_timer_;
  std::function<void()> idle_;
};

bool SubscriberCore::Start(std::string* error) {
  auto credentials = MakeUncheckedCredentials(options_.endpoint, options_.credential, error);
  if (!credentials) return false;
  authorizer_ = std::make_unique<Authorizer>(loop_, std::move(credentials->tokens));
  // Acks have a separate channel, so that they do not wait behind messages that are not read yet.
  stream_stub_ = std::make_unique<PullStream::Stub>(options_.endpoint, credentials->channel, 0);
  StartAcks(std::make_unique<AckSender::Stub>(options_.endpoint, credentials->channel, 1));
  StartStream();
  return true;
}

void SubscriberCore::StartAcks(std::unique_ptr<AckSender::Stub> stub) {
  AckSender::Callbacks callbacks;
  callbacks.is_held = [this](uint64_t handle) { return held_.Find(handle) != nullptr; };
  callbacks.link_of = [this](uint64_t handle) { return LinkOf(handle); };
  callbacks.needs_lease = [this](uint64_t handle) { return NeedsLease(handle); };
  callbacks.on_result = [this](uint64_t handle, int deadline_seconds, AckResult result) {
    OnResult(handle, deadline_seconds, result);
  };
  callbacks.on_failure = [this](const std::string& text) {
    if (callbacks_.on_ack_failure) callbacks_.on_ack_failure(text);
  };
  callbacks.on_answered = [this] { HandOn(); };
  callbacks.on_call = [this](const CallReport& call) { Report(call); };
  const auto outstanding = std::max<int64_t>(options_.max_outstanding_messages, 1);
  acks_ = std::make_unique<AckSender>(
      loop_, authorizer_.get(), std::move(stub),
      AckSender::Options{options_.subscription, options_.quota_project,
                         static_cast<size_t>(outstanding), options_.spans},
      std::move(callbacks));
}

void SubscriberCore::StartStream() {
  PullStream::Options stream;
  stream.first_request.set_subscription(options_.subscription);
  stream.first_request.set_client_id(NewClientId());
  stream.first_request.set_stream_ack_deadline_seconds(
      static_cast<int>(LeaseKeeper::kStreamDeadline.count()));
  stream.first_request.set_max_outstanding_messages(options_.max_outstanding_messages);
  stream.first_request.set_max_outstanding_bytes(options_.max_outstanding_bytes);
  stream.first_request.set_protocol_version(1);
  stream.quota_project = options_.quota_project;
  stream.authorizer = authorizer_.get();
  stream.ping_interval = options_.ping_interval;
  stream.ping_timeout = options_.ping_timeout;
  PullStream::Callbacks callbacks;
  callbacks.on_response = [this](PullResponse response, bool first) {
    OnResponse(std::move(response), first);
  };
  callbacks.on_failure = [this](const std::string& text) {
    if (callbacks_.on_failure) callbacks_.on_failure(text);
  };
  callbacks.on_fatal = [this](const std::string& text) {
    if (callbacks_.on_fatal) callbacks_.on_fatal(text);
  };
  callbacks.on_call = [this](const CallReport& call) { Report(call); };
  stream_ = std::make_unique<PullStream>(loop_, stream_stub_.get(), std::move(stream),
                                         std::move(callbacks));
  stream_->Start();
}

void SubscriberCore::OnResponse(PullResponse response, bool first) {
  const auto now = Clock::now();
  if (response.properties) {
    properties_ = *response.properties;
    leases_.set_exactly_once(properties_.exactly_once);
    acks_->batcher().set_serial_per_key(properties_.exactly_once);
    if (!properties_.ordered) gate_.Clear();
  }
  const bool exactly_once = properties_.exactly_once;
  if (first && callbacks_.on_connected) callbacks_.on_connected(exactly_once, properties_.ordered);

  const int extension = static_cast<int>(leases_.Extension().count());
  for (PulledMessage& pulled : response.messages) {
    const State state = !pulling_      ? State::kNacked
                        : exactly_once ? State::kReceipt
                                       : State::kWaiting;
    std::optional<TraceContext> trace;
    if (options_.spans != nullptr) trace = FindTraceContext(pulled.message.attributes);
    const uint64_t handle = held_.Add(std::move(pulled), state, now);
    if (trace && trace->sampled()) {
      held_.Find(handle)->trace = std::make_unique<TraceContext>(*trace);
    }
    if (!pulling_) {
      NackHeld(handle, held_.Find(handle));
    } else if (exactly_once) {
      leases_.AddConfirmed(handle, now);
      AddAck(extension, handle, *held_.Find(handle), now);
    } else {
      leases_.Add(handle, now);
    }
  }
  // The messages cannot be handed on before their receipts are confirmed.
  if (exactly_once || !pulling_) acks_->batcher().Flush(now);
  HandOn();
  ArmLeaseTimer();
}

void SubscriberCore::HandOn() {
  HeldMessages::Ready ready = held_.TakeReady(properties_.ordered ? &gate_ : nullptr, Clock::now());
  for (const uint64_t handle : ready.turned_away) NackHeld(handle, held_.Find(handle));
  if (!ready.messages.empty()) {
    if (options_.spans != nullptr) AddReceiveSpan(ready.messages);
    callbacks_.on_messages(std::move(ready.messages));
  }
  stream_->PauseReading(ready.full);
  Pump();
}

std::optional<SpanLink> SubscriberCore::LinkOf(uint64_t handle) const {
  const HeldMessage* held = held_.Find(handle);
  if (held == nullptr || held->trace == nullptr) return std::nullopt;
  return SpanLink{*held->trace, std::string(held->message_id)};
}

// From the arrival of the first of them, which may have waited here.
void SubscriberCore::AddReceiveSpan(const std::vector<ReceivedMessage>& messages) const {
  std::vector<SpanLink> links;
  auto received = Clock::time_point::max();
  for (const ReceivedMessage& message : messages) {
    std::optional<SpanLink> link = LinkOf(message.handle);
    if (!link) continue;
    links.push_back(std::move(*link));
    received = std::min(received, held_.Find(message.handle)->received);
  }
  if (links.empty()) return;
  options_.spans->Add(BatchSpan(kReceive, options_.subscription, std::move(links), messages.size(),
                                SpanTime(received)));
}

void SubscriberCore::AddAck(int deadline_seconds, uint64_t handle, const HeldMessage& held,
                            Clock::time_point now) {
  acks_->batcher().Add(
      deadline_seconds,
      {.handle = handle, .ack_id = held.ack_id, .key = held.key, .block = held.block}, now);
}

void SubscriberCore::NackHeld(uint64_t handle, HeldMessage* held) {
  held->state = State::kNacked;
  leases_.Remove(handle);
  AddAck(0, handle, *held, Clock::now());
}

void SubscriberCore::Ack(const std::vector<uint64_t>& handles) {
  const auto now = Clock::now();
  for (uint64_t handle : handles) {
    HeldMessage* held = held_.TakeFromHand(handle);
    if (held == nullptr) continue;
    held->state = State::kAcked;
    leases_.Record(held->received, now);
    // Its lease is not extended any more.
    if (!properties_.exactly_once) leases_.Remove(handle);
    AddAck(AckRequest::kAcknowledge, handle, *held, now);
  }
  HandOn();
}

void SubscriberCore::Nack(const std::vector<uint64_t>& handles) {
  const auto now = Clock::now();
  // All keys are closed before anything is handed on.
  for (uint64_t handle : handles) {
    HeldMessage* held = held_.TakeFromHand(handle);
    if (held == nullptr) continue;
    if (properties_.ordered) gate_.GiveBack(held->key, held->message_id, held->position, now);
    NackHeld(handle, held);
  }
  HandOn();
}

void SubscriberCore::Forget(uint64_t handle, Settlement settlement) {
  const bool handed_on = held_.Find(handle)->handed_on;
  leases_.Remove(handle);
  held_.Remove(handle);
  if (handed_on && callbacks_.on_settled) callbacks_.on_settled(handle, settlement);
}

void SubscriberCore::Pump() {
  acks_->Pump();
  if (idle_ && held_.empty() && acks_->idle()) idle_();
}

bool SubscriberCore::NeedsLease(uint64_t handle) const {
  const HeldMessage* held = held_.Find(handle);
  return held != nullptr && held->state != State::kNacked &&
         (held->state != State::kAcked || properties_.exactly_once);
}

void SubscriberCore::OnResult(uint64_t handle, int deadline_seconds, AckResult result) {
  HeldMessage* held = held_.Find(handle);
  if (held == nullptr) return;
  if (deadline_seconds <= 0) {
    if (properties_.ordered && held->state == State::kNacked) NoteReturned(*held, result);
    Forget(handle, result == AckResult::kSuccess ? Settlement::kDone : Settlement::kFailed);
  } else if (result == AckResult::kSuccess) {
    if (held->state == State::kReceipt) held->state = State::kWaiting;
  } else if (held->state == State::kReceipt) {
    // Another client may have the message by now. It is delivered again, and after it the messages
    // that follow it in its key.
    LoseWaiting(handle);
  } else if (result == AckResult::kPermanent && properties_.exactly_once) {
    // The lease is lost; the ack will fail, and the inbox recognizes the message.
    leases_.Remove(handle);
  }
}

// The lease of a message that was not handed on yet is lost. The messages that follow it in its key
// must not be handed on before it is delivered again.
void SubscriberCore::LoseWaiting(uint64_t handle) {
  if (properties_.ordered) {
    const HeldMessage& held = *held_.Find(handle);
    gate_.GiveBack(held.key, held.message_id, held.position, Clock::now());
    gate_.Returned(held.key, held.message_id);
  }
  Forget(handle, Settlement::kFailed);
}

// After an ack id that is no longer valid the service has the message back, too. If the nack did
// not reach the service, it has it when the lease is over.
void SubscriberCore::NoteReturned(const HeldMessage& held, AckResult result) {
  if (result != AckResult::kTransient) return gate_.Returned(held.key, held.message_id);
  loop_->After(LeaseKeeper::kMaxExtension,
               [this, key = std::string(held.key), id = std::string(held.message_id)] {
                 gate_.Returned(key, id);
               });
}

void SubscriberCore::ArmLeaseTimer() {
  loop_->Cancel(lease_timer_);
  lease_timer_ = {};
  if (auto due = leases_.NextDue()) {
    lease_timer_ = loop_->After(*due - Clock::now(), [this] { ExtendLeases(); });
  }
}

void SubscriberCore::ExtendLeases() {
  const auto now = Clock::now();
  const int extension = static_cast<int>(leases_.Extension().count());
  LeaseKeeper::Due due =
      leases_.TakeDue(now, [this](uint64_t handle) { return NeedsLease(handle); });
  for (uint64_t handle : due.extend) {
    AddAck(extension, handle, *held_.Find(handle), now);
  }
  for (uint64_t handle : due.give_up) {
    // A message that the consumer has in hand stays there, without a lease.
    if (!held_.Find(handle)->handed_on) LoseWaiting(handle);
  }
  Pump();
  ArmLeaseTimer();
}

void SubscriberCore::StopPulling() {
  if (!pulling_) return;
  pulling_ = false;
  stream_->Close();
  for (const uint64_t handle : held_.TakeIncoming()) NackHeld(handle, held_.Find(handle));
  acks_->batcher().Flush(Clock::now());
  Pump();
}

void SubscriberCore::Finish(std::function<void()> idle) {
  StopPulling();
  Nack(held_.InHand());
  idle_ = std::move(idle);
  acks_->batcher().Flush(Clock::now());
  Pump();
}

void SubscriberCore::CancelAll() {
  idle_ = nullptr;
  stream_->Abort();
  acks_->Cancel();
}

class SubscriberImpl final : public Subscriber {
 public:
  ~SubscriberImpl() override { Stop(std::chrono::milliseconds(0)); }

  bool Start(SubscriberOptions options, SubscriberCallbacks callbacks, std::string* error) {
    loop_ = EventLoop::Start("postbox pull", error);
    if (!loop_) return false;
    core_ = std::make_unique<SubscriberCore>(loop_.get(), std::move(options), std::move(callbacks));
    bool started = false;
    loop_->Run([&] { started = core_->Start(error); });
    if (!started) {
      loop_->Stop([this] { core_.reset(); });
      loop_.reset();
    }
    return started;
  }

  void Ack(std::vector<uint64_t> handles) override {
    loop_->Post([this, handles = std::move(handles)] { core_->Ack(handles); });
  }
  void Nack(uint64_t handle) override {
    loop_->Post([this, handle] { core_->Nack({handle}); });
  }
  void GiveBack(std::function<std::vector<uint64_t>()> take) override {
    loop_->Post([this, take = std::move(take)] { core_->Nack(take()); });
  }
  CredentialState Credential() const override { return core_->Credential(); }
  void StopPulling() override {
    if (!loop_) return;
    loop_->Run([this] { core_->StopPulling(); });
  }

  void Stop(std::chrono::milliseconds timeout) override {
    if (!loop_) return;
    std::mutex mutex;
    std::condition_variable changed;
    bool idle = false;
    loop_->Post([&] {
      core_->Finish([&] {
        const std::lock_guard<std::mutex> lock(mutex);
        idle = true;
        changed.notify_one();
      });
    });
    {
      std::unique_lock<std::mutex> lock(mutex);
      changed.wait_for(lock, timeout, [&] { return idle; });
    }
    loop_->Run([this] { core_->CancelAll(); });
    // If gRPC has operations left after the limit, what they refer to must be leaked.
    if (!loop_->Stop([this] { core_.reset(); })) static_cast<void>(core_.release());
    loop_.reset();
  }

 private:
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<SubscriberCore> core_;
};

}  // namespace

std::unique_ptr<Subscriber> Subscriber::Create(SubscriberOptions options,
                                               SubscriberCallbacks callbacks, std::string* error) {
  auto subscriber = std::make_unique<SubscriberImpl>();
  if (!subscriber->Start(std::move(options), std::move(callbacks), error)) return nullptr;
  return subscriber;
}

}  // namespace postbox::pubsub
