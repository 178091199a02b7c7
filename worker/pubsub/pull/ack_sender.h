// Sends acks, nacks and longer deadlines in batches (ack_batcher.h), and again as long as they can
// succeed. For the loop's thread.
//
// The result of each entry is told once, when it is not tried again.
#ifndef POSTBOX_WORKER_PUBSUB_PULL_ACK_SENDER_H_
#define POSTBOX_WORKER_PUBSUB_PULL_ACK_SENDER_H_

#include <grpcpp/generic/generic_stub.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "worker/pubsub/auth/authorizer.h"
#include "worker/pubsub/channel.h"
#include "worker/pubsub/event_loop.h"
#include "worker/pubsub/pull/ack_batcher.h"
#include "worker/pubsub/pull/ack_results.h"
#include "worker/pubsub/pull/subscriber.h"
#include "worker/pubsub/traces/span.h"

namespace postbox::pubsub {

class AckSender {
 public:
  using Stub = RenewedStub<grpc::GenericStub>;
  struct Options {
    std::string subscription;         // full name
    std::string quota_project;        // empty: that of the credentials
    std::size_t outstanding;          // as for AckBatcher
    std::shared_ptr<SpanSink> spans;  // null: there are no traces
  };
  // None of them may be empty.
  struct Callbacks {
    // Whether a message is not settled yet. Once it is settled, its entries are not tried again.
    std::function<bool(uint64_t handle)> is_held;
    // What its span links to; nothing if its trace is not sampled. Asked only if there are `spans`.
    std::function<std::optional<SpanLink>(uint64_t handle)> link_of;
    // Whether its lease is to be extended; if not, entries that do so are dropped.
    std::function<bool(uint64_t handle)> needs_lease;
    // An entry is done. `deadline_seconds` as in AckRequest.
    std::function<void(uint64_t handle, int deadline_seconds, AckResult)> on_result;
    // A request has failed as a whole.
    std::function<void(const std::string& error)> on_failure;
    // All entries of a request are done, or are tried again.
    std::function<void()> on_answered;
    // A call is over, whatever its code.
    std::function<void(const CallReport&)> on_call;
  };

  // `authorizer` lives for longer.
  AckSender(EventLoop* loop, Authorizer* authorizer, std::unique_ptr<Stub> stub, Options options,
            Callbacks callbacks);

  AckBatcher& batcher() { return batcher_; }
  // Sends what is due, and sets the timer for the rest.
  void Pump();
  // No call is under way.
  bool idle() const { return calls_.empty(); }
  // Ends the calls that are under way.
  void Cancel();

 private:
  struct Call;

  void Send(AckRequest request);
  void Begin(const std::shared_ptr<Call>& call, const Authorization& authorization);
  void OnAnswer(const std::shared_ptr<Call>& call);
  // A request with messages of sampled traces has a span.
  std::vector<SpanLink> Links(const AckRequest& request) const;
  void AddSpan(Call* call) const;
  // Whether an entry that was answered so is to be tried again; then it knows when.
  bool TriesAgain(const AckRequest& request, AckEntry* entry, AckResult result) const;

  EventLoop* const loop_;
  Authorizer* const authorizer_;
  const std::unique_ptr<Stub> stub_;
  const Options options_;
  const Callbacks callbacks_;
  AckBatcher batcher_;
  EventLoop::TimerId timer_;
  std::unordered_set<std::shared_ptr<Call>> calls_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PULL_ACK_SENDER_H_
