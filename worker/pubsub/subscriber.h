// Receives the messages of one subscription over StreamingPull.
//
// Plain header: standard library only. The subscriber runs on an I/O thread of its own that was
// started with all signals blocked; callbacks are called on it and must be quick.
//
//   - A message is handed on with a handle and is then "in hand" until Ack or Nack. Its lease is
//     extended meanwhile (lease_keeper.h). Under exactly-once delivery it is handed on only after
//     its receipt was confirmed, because an unconfirmed one may be delivered to somebody else.
//   - No more than max_outstanding messages or bytes are in hand (one message always may be): what
//     arrived beyond that waits here, and nothing more is read from the stream meanwhile.
//   - Ack and Nack return at once; they travel in batches (ack_batcher.h), are tried again as long
//     as that makes sense, and on_settled says what came of them. An ack that failed for good is no
//     loss: the message is delivered again.
//   - On an ordered subscription a nack closes its key (key_gate.h): what follows of that key here
//     is nacked too until the nacked message is back. Messages of the key that are in hand are the
//     consumer's to nack.
//   - The stream is opened again, with the same client_id, whenever it ends with a code that passes
//     (error_class.h), with kReconnectBackoff; on_failure tells of each such end. A code that a
//     person must mend ends the subscriber: on_fatal, once. Acks of what is in hand still work
//     then.
//   - A stream that does not answer a ping any more (and did before) is opened again.
#ifndef POSTBOX_WORKER_PUBSUB_SUBSCRIBER_H_
#define POSTBOX_WORKER_PUBSUB_SUBSCRIBER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/rules/endpoint.h"

namespace postbox::pubsub {

struct ReceivedMessage {
  uint64_t handle = 0;
  std::string message_id;
  std::string data;
  std::vector<std::pair<std::string, std::string>> attributes;  // by name, ascending
  std::string ordering_key;
  std::chrono::system_clock::time_point publish_time;
  int delivery_attempt = 0;  // 0: the subscription has no dead-letter policy
};

enum class Settlement {
  kDone,    // the service took the ack or nack
  kFailed,  // it did not, or does not know the message any more; a redelivery may come
};

struct SubscriberOptions {
  Endpoint endpoint{};
  std::string subscription{};   // full name
  std::string quota_project{};  // empty: none
  int64_t max_outstanding_messages = 1000;
  int64_t max_outstanding_bytes = 100 * 1024 * 1024;
  // For tests only; the values are the rules of the service.
  std::chrono::milliseconds ping_interval = std::chrono::seconds(30);
  std::chrono::milliseconds ping_timeout = std::chrono::seconds(15);
};

// Any of them may be left empty, except on_message.
struct SubscriberCallbacks {
  std::function<void(ReceivedMessage)> on_message;
  std::function<void(uint64_t handle, Settlement)> on_settled;
  // The stream is open: the first response has come. Once per connection.
  std::function<void(bool exactly_once, bool ordered)> on_connected;
  // The stream ended and will be opened again; '<CODE>: text'.
  std::function<void(const std::string& error)> on_failure;
  // The subscriber gave up; '<CODE>: text'.
  std::function<void(const std::string& error)> on_fatal;
};

class Subscriber {
 public:
  // Starts to pull. Null and a sentence in `error` if the channel cannot be made.
  static std::unique_ptr<Subscriber> Create(SubscriberOptions options,
                                            SubscriberCallbacks callbacks, std::string* error);
  virtual ~Subscriber() = default;  // Stop(0) if Stop was not called

  // Any thread, until Stop. A handle that is settled already or unknown is ignored.
  virtual void Ack(uint64_t handle) = 0;
  virtual void Nack(uint64_t handle) = 0;

  // Closes the stream; when it returns, on_message is not called any more. What waits here for the
  // consumer is nacked. What is in hand stays in hand.
  virtual void StopPulling() = 0;

  // StopPulling, nacks what is still in hand, waits up to `timeout` until all acks and nacks are
  // settled, then ends the I/O thread. No callback is called after it has returned. Not to be
  // called from a callback.
  virtual void Stop(std::chrono::milliseconds timeout) = 0;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_SUBSCRIBER_H_
