#include "worker/pubsub/subscriber.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <random>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "proto/rules/backoff.h"
#include "proto/rules/error_class.h"
#include "proto/rules/limits.h"
#include "worker/pubsub/ack_batcher.h"
#include "worker/pubsub/ack_results.h"
#include "worker/pubsub/ack_wire.h"
#include "worker/pubsub/authorizer.h"
#include "worker/pubsub/channel.h"
#include "worker/pubsub/credentials.h"
#include "worker/pubsub/event_loop.h"
#include "worker/pubsub/key_gate.h"
#include "worker/pubsub/lease_keeper.h"
#include "worker/pubsub/pull_stream.h"

namespace postbox::pubsub {
namespace {

using Clock = EventLoop::Clock;

constexpr std::chrono::seconds kAckTimeout{60};
// An answer after LeaseKeeper::kMargin comes too late for the lease.
constexpr std::chrono::seconds kModifyTimeout{10};
constexpr std::chrono::seconds kKeepTryingAcks{600};
constexpr int kModifyAttempts = 3;
constexpr char kAcknowledgeMethod[] = "/google.pubsub.v1.Subscriber/Acknowledge";
constexpr char kModifyMethod[] = "/google.pubsub.v1.Subscriber/ModifyAckDeadline";

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

// The part of the subscriber that lives on the loop's thread.
class SubscriberCore {
 public:
  SubscriberCore(EventLoop* loop, SubscriberOptions options, SubscriberCallbacks callbacks)
      : loop_(loop),
        options_(std::move(options)),
        callbacks_(std::move(callbacks)),
        batcher_(options_.subscription,
                 static_cast<size_t>(std::max<int64_t>(options_.max_outstanding_messages, 1))) {}

  bool Start(std::string* error);
  void Ack(const std::vector<uint64_t>& handles);
  void Nack(const std::vector<uint64_t>& handles);
  void StopPulling();
  // From now on `idle` is called whenever no message is unsettled.
  void Finish(std::function<void()> idle);
  void CancelAll();
  CredentialState Credential() const { return authorizer_->State(); }  // any thread

 private:
  enum class State {
    kReceipt,  // exactly-once delivery: waits until its receipt is confirmed
    kWaiting,  // waits to be handed on
    kInHand,   // with the consumer
    kAcked,    // its ack is not settled yet
    kNacked,   // its nack is not settled yet
  };
  struct Held : MessageIdentity {
    State state = State::kWaiting;
    bool handed_on = false;
    uint64_t position = 0;  // in its key (key_gate.h), since it was handed on
    int64_t bytes = 0;
    Clock::time_point received;
  };
  using Messages = absl::flat_hash_map<uint64_t, Held>;  // by handle
  struct AckCall {
    std::unique_ptr<grpc::ClientContext> context;  // null: waits for a token
    std::string authorization;
    bool repeated = false;
    AckRequest request;
    grpc::ByteBuffer response;
    grpc::Status status;
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
  };

  // One that arrived and was not handed on.
  struct Incoming {
    uint64_t handle = 0;
    ReceivedMessage message;
  };

  void OnResponse(PullResponse response, bool first);
  void HandOn();
  bool FitsBudget(int64_t bytes) const;
  void NackHeld(uint64_t handle, Held& held);
  Held* TakeFromHand(uint64_t handle);
  void Forget(Messages::iterator it, Settlement settlement);

  static AckEntry Entry(uint64_t handle, const Held& held) {
    return {.handle = handle, .ack_id = held.ack_id, .key = held.key, .block = held.block};
  }
  // Whether the lease of a message is to be extended.
  bool NeedsLease(uint64_t handle) const;
  void Pump();
  void Send(AckRequest request);
  void Begin(const std::shared_ptr<AckCall>& call, const Authorization& authorization);
  void OnAnswer(const std::shared_ptr<AckCall>& call);
  // Handles the result of one entry. True if the entry must be tried again.
  bool Conclude(const AckRequest& request, AckEntry& entry, AckResult result);
  void LoseWaiting(Messages::iterator it);
  void NoteReturned(const Held& held, AckResult result);
  void ExtendLeases();
  void ArmLeaseTimer();

  EventLoop* const loop_;
  const SubscriberOptions options_;
  const SubscriberCallbacks callbacks_;
  std::unique_ptr<Authorizer> authorizer_;
  std::unique_ptr<PullStream::Stub> stream_stub_;
  std::unique_ptr<RenewedStub<grpc::GenericStub>> ack_stub_;
  std::unique_ptr<PullStream> stream_;

  bool pulling_ = true;
  bool exactly_once_ = false;
  bool ordered_ = false;
  uint64_t last_handle_ = 0;
  Messages messages_;
  std::deque<Incoming> incoming_;  // kReceipt and kWaiting, in order of arrival
  int64_t in_hand_messages_ = 0;
  int64_t in_hand_bytes_ = 0;
  KeyGate gate_;

  LeaseKeeper leases_;
  EventLoop::TimerId lease_timer_;
  AckBatcher batcher_;
  EventLoop::TimerId batch_timer_;
  std::unordered_set<std::shared_ptr<AckCall>> calls_;
  std::function<void()> idle_;
};

bool SubscriberCore::Start(std::string* error) {
  auto credentials = MakeUncheckedCredentials(options_.endpoint, options_.credential, error);
  if (!credentials) return false;
  authorizer_ = std::make_unique<Authorizer>(loop_, std::move(credentials->tokens));
  // Acks have a separate channel, so that they do not wait behind messages that are not read yet.
  stream_stub_ = std::make_unique<PullStream::Stub>(options_.endpoint, credentials->channel, 0);
  ack_stub_ =
      std::make_unique<RenewedStub<grpc::GenericStub>>(options_.endpoint, credentials->channel, 1);

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
  stream_ = std::make_unique<PullStream>(loop_, stream_stub_.get(), std::move(stream),
                                         std::move(callbacks));
  stream_->Start();
  return true;
}

void SubscriberCore::OnResponse(PullResponse response, bool first) {
  const auto now = Clock::now();
  if (response.properties) {
    exactly_once_ = response.properties->exactly_once;
    ordered_ = response.properties->ordered;
    leases_.set_exactly_once(exactly_once_);
    batcher_.set_serial_per_key(exactly_once_);
    if (!ordered_) gate_.Clear();
  }
  if (first && callbacks_.on_connected) callbacks_.on_connected(exactly_once_, ordered_);

  const int extension = static_cast<int>(leases_.Extension().count());
  for (PulledMessage& pulled : response.messages) {
    const uint64_t handle = ++last_handle_;
    Held& held = messages_[handle];
    static_cast<MessageIdentity&>(held) = std::move(pulled.identity);
    held.bytes = pulled.bytes;
    held.received = now;
    if (!pulling_) {
      NackHeld(handle, held);
      continue;
    }
    held.state = exactly_once_ ? State::kReceipt : State::kWaiting;
    pulled.message.handle = handle;
    incoming_.push_back({handle, std::move(pulled.message)});
    if (exactly_once_) {
      leases_.AddConfirmed(handle, now);
      batcher_.Add(extension, Entry(handle, held), now);
    } else {
      leases_.Add(handle, now);
    }
  }
  // The messages cannot be handed on before their receipts are confirmed.
  if (exactly_once_ || !pulling_) batcher_.Flush(now);
  HandOn();
  ArmLeaseTimer();
}

bool SubscriberCore::FitsBudget(int64_t bytes) const {
  return in_hand_messages_ == 0 || (in_hand_messages_ < options_.max_outstanding_messages &&
                                    in_hand_bytes_ + bytes <= options_.max_outstanding_bytes);
}

void SubscriberCore::HandOn() {
  const auto now = Clock::now();
  bool full = false;
  int64_t unconfirmed_bytes = 0;
  // Keys with an earlier message that cannot be handed on yet.
  absl::flat_hash_set<std::string_view> waits;
  std::deque<Incoming> rest;
  std::vector<ReceivedMessage> messages;
  messages.reserve(incoming_.size());
  while (!incoming_.empty()) {
    Incoming next = std::move(incoming_.front());
    incoming_.pop_front();
    const uint64_t handle = next.handle;
    Held& held = messages_.at(handle);
    if (held.state == State::kReceipt || (!held.key.empty() && waits.contains(held.key))) {
      unconfirmed_bytes += held.bytes;
      waits.insert(held.key);
      rest.push_back(std::move(next));
    } else if (!FitsBudget(held.bytes)) {
      full = true;
      rest.push_back(std::move(next));
      break;
    } else if (ordered_ && (held.position = gate_.Admit(held.key, held.message_id, now)) == 0) {
      NackHeld(handle, held);
    } else {
      held.state = State::kInHand;
      held.handed_on = true;
      ++in_hand_messages_;
      in_hand_bytes_ += held.bytes;
      messages.push_back(std::move(next.message));
    }
  }
  incoming_.insert(incoming_.begin(), std::make_move_iterator(rest.begin()),
                   std::make_move_iterator(rest.end()));
  if (!messages.empty()) callbacks_.on_messages(std::move(messages));
  full = full || unconfirmed_bytes >= std::max<int64_t>(options_.max_outstanding_bytes, 1) ||
         static_cast<int64_t>(incoming_.size()) >=
             std::max<int64_t>(options_.max_outstanding_messages, 1);
  stream_->PauseReading(full);
  Pump();
}

void SubscriberCore::NackHeld(uint64_t handle, Held& held) {
  held.state = State::kNacked;
  leases_.Remove(handle);
  batcher_.Add(0, Entry(handle, held), Clock::now());
}

// Null if the message is not with the consumer.
SubscriberCore::Held* SubscriberCore::TakeFromHand(uint64_t handle) {
  auto it = messages_.find(handle);
  if (it == messages_.end() || it->second.state != State::kInHand) return nullptr;
  --in_hand_messages_;
  in_hand_bytes_ -= it->second.bytes;
  return &it->second;
}

void SubscriberCore::Ack(const std::vector<uint64_t>& handles) {
  const auto now = Clock::now();
  for (uint64_t handle : handles) {
    Held* held = TakeFromHand(handle);
    if (held == nullptr) continue;
    held->state = State::kAcked;
    leases_.Record(held->received, now);
    if (!exactly_once_) leases_.Remove(handle);  // its lease is not extended any more
    batcher_.Add(AckRequest::kAcknowledge, Entry(handle, *held), now);
  }
  HandOn();
}

void SubscriberCore::Nack(const std::vector<uint64_t>& handles) {
  const auto now = Clock::now();
  // All keys are closed before anything is handed on.
  for (uint64_t handle : handles) {
    Held* held = TakeFromHand(handle);
    if (held == nullptr) continue;
    if (ordered_) gate_.GiveBack(held->key, held->message_id, held->position, now);
    NackHeld(handle, *held);
  }
  HandOn();
}

void SubscriberCore::Forget(Messages::iterator it, Settlement settlement) {
  const uint64_t handle = it->first;
  const bool handed_on = it->second.handed_on;
  leases_.Remove(handle);
  messages_.erase(it);
  if (handed_on && callbacks_.on_settled) callbacks_.on_settled(handle, settlement);
}

void SubscriberCore::Pump() {
  const auto now = Clock::now();
  while (auto request = batcher_.Take(now)) Send(std::move(*request));
  loop_->Cancel(batch_timer_);
  batch_timer_ = {};
  if (auto due = batcher_.NextDue()) {
    batch_timer_ = loop_->After(*due - now, [this] { Pump(); });
  }
  if (idle_ && messages_.empty() && calls_.empty()) idle_();
}

bool SubscriberCore::NeedsLease(uint64_t handle) const {
  const auto it = messages_.find(handle);
  return it != messages_.end() && it->second.state != State::kNacked &&
         (it->second.state != State::kAcked || exactly_once_);
}

void SubscriberCore::Send(AckRequest request) {
  if (request.deadline_seconds > 0) {
    // Drops the leases of messages that were settled while the request was gathered.
    std::erase_if(request.entries,
                  [this](const AckEntry& entry) { return !NeedsLease(entry.handle); });
    if (request.entries.empty()) return;
  }
  auto call = std::make_shared<AckCall>();
  call->request = std::move(request);
  calls_.insert(call);
  authorizer_->WhenReady([this, call](const Authorization& answer) { Begin(call, answer); });
}

void SubscriberCore::Begin(const std::shared_ptr<AckCall>& call,
                           const Authorization& authorization) {
  if (authorization.code != kOk) {
    call->status =
        grpc::Status(static_cast<grpc::StatusCode>(authorization.code), authorization.error);
    return loop_->Post([this, call] { OnAnswer(call); });
  }
  const AckRequest& request = call->request;
  call->authorization = authorization.header;
  call->context = std::make_unique<grpc::ClientContext>();
  AddHeaders(call->context.get(), RouteHeader("subscription", options_.subscription),
             options_.quota_project.empty() ? authorization.quota_project : options_.quota_project,
             call->authorization);
  call->context->set_deadline(std::chrono::system_clock::now() +
                              (request.is_ack() ? kAckTimeout : kModifyTimeout));
  const grpc::Slice message(EncodeAckRequest(options_.subscription, request));
  call->reader = ack_stub_->Get()->PrepareUnaryCall(
      call->context.get(), request.is_ack() ? kAcknowledgeMethod : kModifyMethod,
      grpc::ByteBuffer(&message, 1), loop_->completion_queue());
  call->reader->StartCall();
  call->reader->Finish(&call->response, &call->status,
                       loop_->Tag([this, call](bool) { OnAnswer(call); }));
}

void SubscriberCore::OnAnswer(const std::shared_ptr<AckCall>& call) {
  const bool refused = authorizer_->Refused(call->authorization, call->status.error_code(),
                                            call->status.error_message());
  if (refused && !std::exchange(call->repeated, true)) {
    call->reader.reset();
    call->context.reset();
    return authorizer_->WhenReady(
        [this, call](const Authorization& answer) { Begin(call, answer); });
  }
  calls_.erase(call);
  AckRequest& request = call->request;
  batcher_.Finished(request, Clock::now());
  const auto results = AckResults(call->status, request.entries);
  std::vector<AckEntry> again;
  for (size_t i = 0; i < request.entries.size(); ++i) {
    if (Conclude(request, request.entries[i], results[i])) {
      again.push_back(std::move(request.entries[i]));
    }
  }
  batcher_.Retry(request.deadline_seconds, std::move(again), Clock::now());
  if (!call->status.ok() && call->status.error_details().empty() && callbacks_.on_ack_failure) {
    callbacks_.on_ack_failure(
        std::string(request.is_ack() ? "Acknowledge: " : "ModifyAckDeadline: ") +
        StatusText(call->status.error_code(), call->status.error_message()));
  }
  HandOn();
}

bool SubscriberCore::Conclude(const AckRequest& request, AckEntry& entry, AckResult result) {
  auto it = messages_.find(entry.handle);
  if (it == messages_.end()) return false;
  Held& held = it->second;
  const bool settles = request.deadline_seconds <= 0;

  if (result == AckResult::kTransient) {
    const auto now = Clock::now();
    const bool try_again = request.is_ack() ? now - entry.first_sent < kKeepTryingAcks
                                            : entry.attempts < kModifyAttempts;
    if (try_again) {
      entry.not_before = now + BackoffDelay(kAckBackoff, entry.attempts, JitterRandom());
      return true;
    }
  }
  if (settles) {
    if (ordered_ && held.state == State::kNacked) NoteReturned(held, result);
    Forget(it, result == AckResult::kSuccess ? Settlement::kDone : Settlement::kFailed);
  } else if (result == AckResult::kSuccess) {
    if (held.state == State::kReceipt) held.state = State::kWaiting;
  } else if (held.state == State::kReceipt) {
    // Another client may have the message by now. It is delivered again, and after it the messages
    // that follow it in its key.
    LoseWaiting(it);
  } else if (result == AckResult::kPermanent && exactly_once_) {
    leases_.Remove(
        entry
            .handle);  // the lease is lost; the ack will fail, and the inbox recognizes the message
  }
  return false;
}

// The lease of a message that was not handed on yet is lost. The messages that follow it in its key
// must not be handed on before it is delivered again.
void SubscriberCore::LoseWaiting(Messages::iterator it) {
  const Held& held = it->second;
  std::erase_if(incoming_, [&](const Incoming& one) { return one.handle == it->first; });
  if (ordered_) {
    gate_.GiveBack(held.key, held.message_id, held.position, Clock::now());
    gate_.Returned(held.key, held.message_id);
  }
  Forget(it, Settlement::kFailed);
}

// After an ack id that is no longer valid the service has the message back, too. If the nack did
// not reach the service, it has it when the lease is over.
void SubscriberCore::NoteReturned(const Held& held, AckResult result) {
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
    batcher_.Add(extension, Entry(handle, messages_.at(handle)), now);
  }
  for (uint64_t handle : due.give_up) {
    // A message that the consumer has in hand stays there, without a lease.
    const auto it = messages_.find(handle);
    if (!it->second.handed_on) LoseWaiting(it);
  }
  Pump();
  ArmLeaseTimer();
}

void SubscriberCore::StopPulling() {
  if (!pulling_) return;
  pulling_ = false;
  stream_->Close();
  for (const Incoming& one : incoming_) NackHeld(one.handle, messages_.at(one.handle));
  incoming_.clear();
  batcher_.Flush(Clock::now());
  Pump();
}

void SubscriberCore::Finish(std::function<void()> idle) {
  StopPulling();
  std::vector<uint64_t> in_hand;
  for (const auto& [handle, held] : messages_) {
    if (held.state == State::kInHand) in_hand.push_back(handle);
  }
  std::sort(in_hand.begin(), in_hand.end());
  Nack(in_hand);
  idle_ = std::move(idle);
  batcher_.Flush(Clock::now());
  Pump();
}

void SubscriberCore::CancelAll() {
  idle_ = nullptr;
  stream_->Abort();
  for (const auto& call : calls_) {
    if (call->context != nullptr) call->context->TryCancel();
  }
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
