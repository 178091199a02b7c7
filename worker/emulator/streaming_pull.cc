#include "worker/emulator/streaming_pull.h"

#include <grpcpp/alarm.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"

#include "worker/emulator/delivery_wire.h"
#include "worker/emulator/rules/validation.h"

namespace postbox::emulator {
namespace {

namespace pb = google::pubsub::v1;

constexpr char kRpc[] = "StreamingPull";

// What is to be said in the next response beside messages.
class DueAnswer {
 public:
  // A response is due, even if there are no messages.
  void Want() { wanted_ = true; }
  void ConfirmAcks(const AckOutcome& outcome) {
    auto* confirmation = confirmations_.mutable_acknowledge_confirmation();
    for (const AckId& id : outcome.done) confirmation->add_ack_ids(FormatAckId(id));
    for (const auto& id : outcome.stale) confirmation->add_invalid_ack_ids(id);
    for (const auto& id : outcome.unordered) confirmation->add_unordered_ack_ids(id);
  }
  void ConfirmDeadlines(const AckOutcome& outcome) {
    auto* confirmation = confirmations_.mutable_modify_ack_deadline_confirmation();
    for (const AckId& id : outcome.done) confirmation->add_ack_ids(FormatAckId(id));
    for (const auto& id : outcome.stale) confirmation->add_invalid_ack_ids(id);
  }
  // All of a response but its messages; nothing: there is none to be sent.
  std::optional<pb::StreamingPullResponse> Take(bool exactly_once, bool ordered, bool messages) {
    pb::StreamingPullResponse response;
    if (exactly_once) response.Swap(&confirmations_);
    confirmations_.Clear();
    if (!messages && !wanted_ && response.ByteSizeLong() == 0) return std::nullopt;
    wanted_ = false;
    auto* properties = response.mutable_subscription_properties();
    properties->set_exactly_once_delivery_enabled(exactly_once);
    properties->set_message_ordering_enabled(ordered);
    return response;
  }

 private:
  bool wanted_ = false;
  pb::StreamingPullResponse confirmations_;
};

// The end of a call: it is finished once, and not while a write is in flight.
class CallEnd {
 public:
  bool concluded() const { return concluded_; }
  bool writing() const { return writing_; }
  const grpc::Status& status() const { return status_; }
  void BeginWrite() { writing_ = true; }
  // These return whether the call is to be finished now.
  bool EndWrite() {
    writing_ = false;
    return concluded_;
  }
  bool Conclude(const grpc::Status& status) {
    concluded_ = true;
    status_ = status;
    return !writing_;
  }

 private:
  bool writing_ = false;
  bool concluded_ = false;
  grpc::Status status_;
};

class StreamingPullReactor final
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
      public Listener,
      public std::enable_shared_from_this<StreamingPullReactor> {
 public:
  StreamingPullReactor(Broker* broker, CallGate* gate, grpc::CallbackServerContext* context)
      : broker_(broker), gate_(gate), context_(context) {}

  void Start() {
    self_ = shared_from_this();
    gate_->CountCall(kRpc);
    StartRead(&request_bytes_);
  }

  void Wake() override { Pump(); }
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override { Conclude(absl::CancelledError("cancelled by the client")); }
  void OnDone() override { self_.reset(); }  // may destroy this

 private:
  void HandleFirst();
  void Open();
  void HandleNext();
  void Acknowledge();
  void Pump();
  // Ends the call, once; later calls do nothing. `unsent` goes back to the subscription.
  void Conclude(const absl::Status& status, const std::vector<LeasedMessage>& unsent = {});
  bool Stalled() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Broker* const broker_;
  CallGate* const gate_;
  grpc::CallbackServerContext* const context_;
  std::shared_ptr<StreamingPullReactor> self_;  // until OnDone
  grpc::ByteBuffer request_bytes_;              // of the read in flight
  grpc::ByteBuffer response_bytes_;             // of the write in flight
  pb::StreamingPullRequest request_;            // the last that was read
  bool first_ = true;                           // used only by reads
  bool answers_pings_ = false;                  // the same
  grpc::Alarm open_later_;

  std::mutex mu_;
  std::optional<StreamHandle> handle_ ABSL_GUARDED_BY(mu_);
  CallEnd end_ ABSL_GUARDED_BY(mu_);
  DueAnswer answer_ ABSL_GUARDED_BY(mu_);
  std::optional<int64_t> stalled_at_ ABSL_GUARDED_BY(mu_);  // Faults::clears() when it stalled
};

void StreamingPullReactor::OnReadDone(bool ok) {
  if (!ok) {
    Conclude(absl::OkStatus());
    return;
  }
  grpc::ProtoBufferReader reader(&request_bytes_);
  if (!request_.ParseFromZeroCopyStream(&reader)) {
    Conclude(absl::InternalError("the request cannot be parsed"));
    return;
  }
  if (first_) {
    first_ = false;
    HandleFirst();
    return;
  }
  HandleNext();
}

void StreamingPullReactor::HandleFirst() {
  if (auto s = CheckStreamingPull(request_, /*first=*/true); !s.ok()) return Conclude(s);
  if (gate_->access() != nullptr) {
    if (auto s = gate_->access()->Check(*context_, kRpc, request_); !s.ok()) return Conclude(s);
  }
  answers_pings_ = request_.protocol_version() >= 1;
  const auto fault = gate_->faults()->Fire(kRpc, {Fault::STATUS, Fault::DELAY},
                                           [](const Fault& rule) { return !AsksForMessage(rule); });
  if (!fault) return Open();
  if (fault->action() == Fault::STATUS) {
    return Conclude(FaultStatus(*fault, absl::StatusCode::kUnavailable));
  }
  // The alarm is a member of this object and keeps its callback. With a shared_ptr in the callback
  // the object would never be destroyed.
  open_later_.Set(std::chrono::system_clock::now() + std::chrono::milliseconds(fault->latency_ms()),
                  [weak = weak_from_this()](bool) {
                    if (const auto self = weak.lock()) self->Open();
                  });
}

void StreamingPullReactor::Open() {
  auto handle = broker_->pulling()->OpenStream(request_, shared_from_this());
  if (!handle.ok()) return Conclude(handle.status());
  bool too_late = false;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    too_late = end_.concluded();
    if (!too_late) handle_ = *handle;
    answer_.Want();
  }
  if (too_late) return handle->Close();
  Acknowledge();
  Pump();
  const std::lock_guard<std::mutex> lock(mu_);
  if (!end_.concluded()) StartRead(&request_bytes_);
}

void StreamingPullReactor::HandleNext() {
  bool deaf = false;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    deaf = Stalled();
  }
  if (!deaf) {
    if (auto s = CheckStreamingPull(request_, /*first=*/false); !s.ok()) return Conclude(s);
    if (request_.ByteSizeLong() == 0) {
      const bool silent = gate_->faults()
                              ->Fire(kRpc, {Fault::PING_SILENCE}, [](const Fault&) { return true; })
                              .has_value();
      const std::lock_guard<std::mutex> lock(mu_);
      if (answers_pings_ && !silent) answer_.Want();
    }
    Acknowledge();
    Pump();
  }
  const std::lock_guard<std::mutex> lock(mu_);
  if (!end_.concluded()) StartRead(&request_bytes_);
}

// Acks, nacks and deadlines that came on the stream.
void StreamingPullReactor::Acknowledge() {
  std::optional<StreamHandle> handle;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    handle = handle_;
  }
  if (!handle) return;
  if (request_.stream_ack_deadline_seconds() != 0) {
    handle->SetDeadline(request_.stream_ack_deadline_seconds());
  }
  if (!request_.ack_ids().empty()) {
    const AckOutcome result = handle->Acknowledge(
        std::vector<absl::string_view>(request_.ack_ids().begin(), request_.ack_ids().end()));
    const std::lock_guard<std::mutex> lock(mu_);
    answer_.ConfirmAcks(result);
  }
  if (!request_.modify_deadline_ack_ids().empty()) {
    std::vector<std::pair<absl::string_view, int>> changes;
    for (int i = 0; i < request_.modify_deadline_ack_ids_size(); ++i) {
      changes.emplace_back(request_.modify_deadline_ack_ids(i),
                           request_.modify_deadline_seconds(i));
    }
    const AckOutcome result = handle->ModifyAckDeadline(changes);
    const std::lock_guard<std::mutex> lock(mu_);
    answer_.ConfirmDeadlines(result);
  }
}

void StreamingPullReactor::OnWriteDone(bool ok) {
  bool finish = false;
  grpc::Status status;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    finish = end_.EndWrite();
    status = end_.status();
  }
  if (finish) {
    Finish(status);
  } else if (ok) {
    Pump();
  } else {
    Conclude(absl::CancelledError("the client is gone"));
  }
}

bool StreamingPullReactor::Stalled() {
  if (stalled_at_ && *stalled_at_ != gate_->faults()->clears()) stalled_at_.reset();
  return stalled_at_.has_value();
}

void StreamingPullReactor::Pump() {
  absl::Status end;
  std::vector<LeasedMessage> unsent;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (end_.concluded() || !handle_) return;
    if (gate_->stopping()) {
      end = absl::UnavailableError("the emulator is shutting down");
    } else {
      if (end_.writing() || Stalled()) return;
      auto batch = handle_->Take();
      const auto matches = [&batch](const Fault& fault) {
        if (!AsksForMessage(fault)) return true;
        return std::any_of(batch->deliveries.begin(), batch->deliveries.end(),
                           [&fault](const LeasedMessage& delivery) {
                             return Matches(fault, delivery.message->Parse());
                           });
      };
      std::optional<Fault> fault;
      if (batch.ok()) {
        fault = gate_->faults()->Fire(kRpc, {Fault::ABORT_STREAM, Fault::STALL}, matches);
      }
      if (!batch.ok()) {
        end = batch.status();
      } else if (fault && fault->action() == Fault::STALL) {
        // The leased messages are lost until their deadlines.
        stalled_at_ = gate_->faults()->clears();
        return;
      } else if (fault) {
        end = FaultStatus(*fault, absl::StatusCode::kUnavailable);
        unsent = std::move(batch->deliveries);
      } else {
        const auto others =
            answer_.Take(batch->exactly_once, batch->ordered, !batch->deliveries.empty());
        if (!others) return;
        response_bytes_ = EncodeDeliveries(batch->deliveries, *others);
        end_.BeginWrite();
        StartWrite(&response_bytes_);
        return;
      }
    }
  }
  Conclude(end, unsent);
}

void StreamingPullReactor::Conclude(const absl::Status& status,
                                    const std::vector<LeasedMessage>& unsent) {
  std::optional<StreamHandle> handle;
  bool finish = false;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (end_.concluded()) return;
    finish = end_.Conclude(ToGrpc(status));
    handle = std::exchange(handle_, std::nullopt);
  }
  if (!status.ok()) gate_->CountError(kRpc);
  if (handle) {
    if (!unsent.empty()) handle->GiveBack(unsent);
    handle->Close();
  }
  if (finish) Finish(ToGrpc(status));
}

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StartStreamingPull(
    Broker* broker, CallGate* gate, grpc::CallbackServerContext* context) {
  auto reactor = std::make_shared<StreamingPullReactor>(broker, gate, context);
  reactor->Start();
  return reactor.get();
}

}  // namespace postbox::emulator
