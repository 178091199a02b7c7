// Receives the messages of one subscription over StreamingPull.
//
// Plain header: standard library only. The subscriber has its own I/O thread, which is
// started with all signals blocked. The callbacks are called on that thread and must be quick.
//
//   - A message is handed on with a handle and is then "in hand" until Ack or Nack. Meanwhile its
//     lease is extended (lease_keeper.h). Under exactly-once delivery a message is handed on only
//     after its receipt was confirmed, because an unconfirmed message may be delivered to another
//     client.
//   - At most max_outstanding_messages messages and max_outstanding_bytes bytes are in hand, but
//     one message of any size may always be. Messages that arrive beyond that wait here, and
//     nothing more is read from the stream meanwhile.
//   - Ack and Nack return at once. They are sent in batches (ack_batcher.h) and tried again as long
//     as they can succeed. on_settled tells the result. If an ack fails, no message is lost: it is
//     delivered again.
//   - On an ordered subscription a nack closes its key (key_gate.h). Later messages of the key that
//     wait here or arrive are nacked, too, until the nacked message is back. The consumer must give
//     back those that it has in hand together with it, with GiveBack.
//   - When the stream ends with an error that passes (error_class.h), on_failure is called, and the
//     stream is opened again with the same client_id after a delay of kReconnectBackoff. When it
//     ends with another error, on_fatal is called once, and it is not opened again. Messages in
//     hand can still be acked then.
//   - Credentials that cannot be used (yet) are an error that passes: on_failure says why, and they
//     are looked at again, for ever.
//   - A stream that has answered pings and does not answer any more is opened again.
#ifndef POSTBOX_WORKER_PUBSUB_PULL_SUBSCRIBER_H_
#define POSTBOX_WORKER_PUBSUB_PULL_SUBSCRIBER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "proto/rules/attributes.h"
#include "proto/rules/endpoint.h"
#include "worker/pubsub/auth/credential_spec.h"
#include "worker/pubsub/traces/span.h"

namespace postbox::pubsub {

struct ReceivedMessage {
  uint64_t handle = 0;
  // In `block`, which copies of the message share.
  std::string_view message_id;
  std::string_view data;
  std::vector<AttributeView> attributes;  // by name, ascending
  std::string_view ordering_key;
  std::shared_ptr<const char[]> block;
  std::chrono::system_clock::time_point publish_time;
  int delivery_attempt = 0;  // 0 if the subscription has no dead-letter policy
};

enum class Settlement {
  kDone,    // the service took the ack or nack
  kFailed,  // the service did not take it; the message may be delivered again
};

// One exchange with the service is over.
struct CallReport {
  enum class Kind {
    kReceive,  // the wait for the next messages of the stream
    kStream,   // a stream: how long it has lasted
    kAck,
    kNack,
    kModack,  // leases were extended
  };
  Kind kind;
  int code;  // of gRPC
  std::chrono::steady_clock::duration took;
};

struct SubscriberOptions {
  Endpoint endpoint{};
  CredentialSpec credential{};  // not looked at if the endpoint is plain text
  std::string subscription{};   // full name
  std::string quota_project{};  // empty: that of the credentials, if any
  int64_t max_outstanding_messages = 1000;
  int64_t max_outstanding_bytes = 100 * 1024 * 1024;
  std::shared_ptr<SpanSink> spans{};  // null: there are no traces
  // Changed only by tests. The values are those that the service asks for.
  std::chrono::milliseconds ping_interval = std::chrono::seconds(30);
  std::chrono::milliseconds ping_timeout = std::chrono::seconds(15);
};

// Each of them except on_messages may be empty.
struct SubscriberCallbacks {
  // The messages that can be handed on together, one at least: those of a response, for example.
  std::function<void(std::vector<ReceivedMessage>)> on_messages;
  std::function<void(uint64_t handle, Settlement)> on_settled;
  // The first response of the stream has come. Called each time that the stream is opened.
  std::function<void(bool exactly_once, bool ordered)> on_connected;
  // The stream ended and will be opened again. `error` has the form '<CODE>: text'.
  std::function<void(const std::string& error)> on_failure;
  // Acks or nacks could not be sent, and are sent again or given up.
  std::function<void(const std::string& error)> on_ack_failure;
  // The stream ended and will not be opened again. `error` has the form '<CODE>: text'.
  std::function<void(const std::string& error)> on_fatal;
  std::function<void(const CallReport&)> on_call;
};

class Subscriber {
 public:
  // Starts to pull. If no thread can be started, returns null and puts one sentence into
  // `error`.
  static std::unique_ptr<Subscriber> Create(SubscriberOptions options,
                                            SubscriberCallbacks callbacks, std::string* error);
  virtual ~Subscriber() = default;  // calls Stop(0) if Stop was not called

  // May be called on any thread until Stop. A handle that is settled or unknown is ignored.
  virtual void Ack(std::vector<uint64_t> handles) = 0;
  virtual void Nack(uint64_t handle) = 0;

  // Returns at once. Calls `take` on the thread that calls on_messages, and nacks the handles that
  // it returns, in their order, before anything else is handed on. So a consumer that forgets a key
  // in `take` is not called with a later message of the key before the key is closed. If it forgot
  // the key first and nacked afterwards, a message that was handed on in between would be applied
  // before the one that failed. `take` is dropped without a call after Stop.
  virtual void GiveBack(std::function<std::vector<uint64_t>()> take) = 0;

  // Whose identity the calls have. Any thread, until Stop.
  virtual CredentialState Credential() const = 0;

  // Closes the stream. on_messages is not called after it has returned. Messages that wait to be
  // handed on are nacked. Messages in hand stay in hand.
  virtual void StopPulling() = 0;

  // Calls StopPulling, nacks the messages in hand, waits at most `timeout` until all acks and nacks
  // are settled, and ends the I/O thread. No callback is called after it has returned. It must not
  // be called from a callback.
  virtual void Stop(std::chrono::milliseconds timeout) = 0;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PULL_SUBSCRIBER_H_
