// The spans `create` of the events of this worker (worker/pubsub/traces/messaging_spans.h).
//
// The session that emits an event does not talk to a collector, and stores nothing more than the
// caller's `traceparent`. The worker makes the span of what the event says: its trace and its
// parent are those of `traceparent`, its id is CreateSpanId() (proto/rules/trace_context.h), and it
// begins and ends when the event occurred. The message that is sent names this span. So what
// consumers do is a child of it. The span is made when the event has its result: of an event on its
// way there is no more than the id of its parent.
//
// Where traces are off, or the trace of the event is not sampled, the message has the caller's
// `traceparent` as it is.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_EVENT_SPANS_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_EVENT_SPANS_H_

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "extension/base/guard.h"
#include "proto/rules/attributes.h"
#include "worker/publisher/source/claimed_event.h"
#include "worker/publisher/source/event_message.h"
#include "worker/pubsub/traces/span.h"

namespace postbox::publisher {

// Where the spans of this process go. Null: there are no traces. One thread.
const std::shared_ptr<pubsub::SpanSink>& EventSpans();
void UseEventSpans(std::shared_ptr<pubsub::SpanSink> spans);

// The attributes of a message whose trace is sampled.
class TracedAttributes {
 public:
  // False: it is not, and the attributes are those of the event. Else `message`, whose ordering key
  // is set, is traced.
  bool Take(const EventView& event, std::string_view topic, ClaimedEvent* message);
  std::span<const pubsub::AttributeView> attributes() const { return attributes_; }

 private:
  std::string traceparent_;
  std::vector<pubsub::AttributeView> attributes_;
};

// Of an event that ends without a message: its time is over, or its row cannot be an event. If its
// trace is sampled, it has its span, too.
void TraceUnsent(const EventView& event, std::string_view topic, ClaimedEvent* message);

// Adds the span of an event that has its result, if that is final.
void AddCreateSpan(ClaimedEvent* event);

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_EVENT_SPANS_H_
