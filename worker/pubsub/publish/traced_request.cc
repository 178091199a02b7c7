#include "worker/pubsub/publish/traced_request.h"

#include <optional>
#include <utility>

#include "proto/rules/error_class.h"
#include "worker/pubsub/publish/message_wire.h"
#include "worker/pubsub/traces/messaging_spans.h"

namespace postbox::pubsub {

std::unique_ptr<TracedRequest> TracedRequest::Of(const PublishHost::Request& request) {
  std::unique_ptr<TracedRequest> traced;
  for (std::size_t i = 0; i < request.messages.size(); ++i) {
    const OutgoingMessage& message = *request.messages[i];
    if (!message.traced) continue;
    const std::optional<TraceContext> trace = EncodedTraceContext(message.encoded);
    if (!trace) continue;
    if (traced == nullptr) {
      traced = std::make_unique<TracedRequest>();
      traced->topic_ = request.topic;
      traced->ordering_key_ = message.ordering_key;
      traced->count_ = request.messages.size();
      traced->begun_ = SpanTime();
    }
    traced->messages_.push_back({i, *trace});
  }
  return traced;
}

Span TracedRequest::End(int code, std::string_view message, std::string_view response) const {
  const std::vector<std::string_view> ids = ReadMessageIds(response);
  std::vector<SpanLink> links;
  links.reserve(messages_.size());
  for (const Message& one : messages_) {
    // Where the answer is not valid, no id is known.
    const bool known = ids.size() == count_;
    links.push_back({one.trace, known ? std::string(ids[one.position]) : std::string()});
  }
  Span span = BatchSpan(kSend, topic_, std::move(links), count_, begun_);
  span.Set(kOrderingKeyAttribute, ordering_key_);
  if (code != kOk) {
    span.error_type = StatusCodeName(code);
    span.error = message;
  }
  return span;
}

}  // namespace postbox::pubsub
