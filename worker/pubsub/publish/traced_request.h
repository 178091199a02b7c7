// A request with messages of sampled traces, from its sending to its answer: the span `send`.
//
// It keeps what it needs of the messages, which may be gone when the answer comes.
#ifndef POSTBOX_WORKER_PUBSUB_PUBLISH_TRACED_REQUEST_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISH_TRACED_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "worker/pubsub/publish/publish_host.h"
#include "worker/pubsub/traces/span.h"

namespace postbox::pubsub {

class TracedRequest {
 public:
  // Null if there is no such message.
  static std::unique_ptr<TracedRequest> Of(const PublishHost::Request& request);

  // It was answered. `response`: a PublishResponse in wire format, empty if there is none.
  Span End(int code, std::string_view message, std::string_view response) const;

 private:
  struct Message {
    std::size_t position;  // in the request
    TraceContext trace;
  };

  std::string topic_;
  std::string ordering_key_;
  std::vector<Message> messages_;
  std::size_t count_ = 0;  // of all messages
  std::int64_t begun_ = 0;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISH_TRACED_REQUEST_H_
