#include "worker/emulator/call_gate.h"

#include <algorithm>
#include <optional>

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "google/rpc/status.pb.h"

namespace postbox::emulator {

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  details.set_message(std::string(status.message()));
  status.ForEachPayload([&details](absl::string_view url, const absl::Cord& value) {
    google::protobuf::Any* any = details.add_details();
    any->set_type_url(std::string(url));
    any->set_value(std::string(value));
  });
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message()),
          details.details().empty() ? "" : details.SerializeAsString()};
}

bool CallGate::Delay(grpc::ServerContext* context, const Fault& fault, int64_t clears) const {
  const absl::Time end = absl::Now() + absl::Milliseconds(fault.latency_ms());
  for (;;) {
    if (stopping_ || context->IsCancelled()) return false;
    const absl::Duration left = end - absl::Now();
    if (left <= absl::ZeroDuration() || faults_->clears() != clears) return true;
    absl::SleepFor(std::min(left, absl::Milliseconds(100)));
  }
}

grpc::Status CallGate::Run(grpc::ServerContext* context, const char* rpc,
                           const google::protobuf::Message& request,
                           absl::FunctionRef<absl::Status()> action) {
  return Run(
      context, rpc, request, [](const Fault& fault) { return !AsksForMessage(fault); },
      [action](bool /*answer_withheld*/) { return action(); });
}

grpc::Status CallGate::Run(grpc::ServerContext* context, const char* rpc,
                           const google::protobuf::Message& request,
                           absl::FunctionRef<bool(const Fault&)> matches,
                           absl::FunctionRef<absl::Status(bool)> action) {
  CountCall(rpc);
  if (access_ != nullptr) {
    if (const auto status = access_->Check(*context, rpc, request); !status.ok()) {
      CountError(rpc);
      return ToGrpc(status);
    }
  }
  int64_t clears = 0;
  const std::optional<Fault> fault =
      faults_->Fire(rpc, {Fault::STATUS, Fault::BIG_TRAILER, Fault::DELAY}, matches, &clears);
  absl::Status status;
  if (!fault) {
    status = action(false);
  } else if (!fault->after_effect() && !Delay(context, *fault, clears)) {
    status = absl::CancelledError("cancelled while an injected latency ran");
  } else if (fault->action() == Fault::DELAY) {
    status = action(fault->after_effect());
    if (fault->after_effect()) Delay(context, *fault, clears);
  } else {
    if (fault->after_effect()) {
      action(true).IgnoreError();
      Delay(context, *fault, clears);
    }
    if (fault->action() == Fault::BIG_TRAILER) {
      context->AddTrailingMetadata("postbox-padding",
                                   std::string(static_cast<size_t>(fault->trailer_bytes()), 'x'));
    }
    status = FaultStatus(*fault, absl::StatusCode::kUnavailable);
  }
  if (!status.ok()) CountError(rpc);
  return ToGrpc(status);
}

void CallGate::CountCall(const char* rpc) {
  const std::lock_guard<std::mutex> lock(mu_);
  ++counters_[rpc].calls;
}

void CallGate::CountError(const char* rpc) {
  const std::lock_guard<std::mutex> lock(mu_);
  ++counters_[rpc].errors;
}

std::map<std::string, CallCounters> CallGate::Counters() {
  const std::lock_guard<std::mutex> lock(mu_);
  return counters_;
}

}  // namespace postbox::emulator
