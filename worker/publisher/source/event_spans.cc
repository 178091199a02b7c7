// See event_spans.h.
#include "worker/publisher/source/event_spans.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "proto/rules/trace_context.h"
#include "worker/pubsub/publish/message_wire.h"
#include "worker/pubsub/traces/messaging_spans.h"

namespace postbox::publisher {

namespace {

// Never destroyed: events are published until the process is gone.
std::shared_ptr<pubsub::SpanSink>& event_spans = *new std::shared_ptr<pubsub::SpanSink>;

// The span `create` of an event whose trace is sampled, by which its message is known.
struct CreateContext {
  pubsub::TraceContext create;
  std::uint64_t parent;
};

std::optional<CreateContext> ContextOf(const EventView& event, std::string_view topic) {
  const std::span given(event.attributes,
                        static_cast<std::size_t>(std::max(event.attribute_count, 0)));
  const std::optional<pubsub::TraceContext> parent = pubsub::FindTraceContext(given);
  if (!parent || !parent->sampled()) return std::nullopt;
  CreateContext context{*parent, parent->span};
  context.create.span = pubsub::CreateSpanId(topic, event.id);
  return context;
}

EventExtras* ExtrasOf(ClaimedEvent* event) {
  if (event->extras == nullptr) event->extras = std::make_unique<EventExtras>();
  return event->extras.get();
}

std::optional<EventTrace> TraceOf(const ClaimedEvent& event) {
  if (event.extras->unsent_trace) return event.extras->unsent_trace;
  const auto attributes = pubsub::MessageAttributes(event.encoded);
  const std::optional<pubsub::TraceContext> create = pubsub::FindTraceContext(attributes);
  if (!create) return std::nullopt;  // it was found unreadable afterwards
  const auto* id = pubsub::FindAttribute(attributes, pubsub::kEventId);
  return EventTrace{*create, id == nullptr ? std::string() : std::string(*id), event.occurred_at};
}

}  // namespace

const std::shared_ptr<pubsub::SpanSink>& EventSpans() { return event_spans; }
void UseEventSpans(std::shared_ptr<pubsub::SpanSink> spans) { event_spans = std::move(spans); }

bool TracedAttributes::Take(const EventView& event, std::string_view topic, ClaimedEvent* message) {
  const std::optional<CreateContext> context = ContextOf(event, topic);
  if (!context) return false;
  traceparent_ = pubsub::FormatTraceparent(context->create);
  attributes_.assign(event.attributes, event.attributes + event.attribute_count);
  for (auto& [name, value] : attributes_) {
    if (name == pubsub::kTraceNames[0].standard || name == pubsub::kTraceNames[0].of_clients) {
      value = traceparent_;
    }
  }
  message->traced = true;
  ExtrasOf(message)->parent_span = context->parent;
  return true;
}

void TraceUnsent(const EventView& event, std::string_view topic, ClaimedEvent* message) {
  if (event_spans == nullptr) return;
  const std::optional<CreateContext> context = ContextOf(event, topic);
  if (!context) return;
  const bool infinite = TIMESTAMP_NOT_FINITE(event.occurred_at_micros);
  message->traced = true;
  EventExtras* const extras = ExtrasOf(message);
  extras->parent_span = context->parent;
  extras->unsent_trace.emplace(
      EventTrace{context->create, std::string(event.id),
                 infinite ? UnixMicros(GetCurrentTimestamp()) : event.occurred_at_micros});
}

void AddCreateSpan(ClaimedEvent* event) {
  const bool published = event->status == pubsub::PublishStatus::kPublished;
  if (!published && event->status != pubsub::PublishStatus::kRejected) return;
  if (event->extras == nullptr || event_spans == nullptr) return;
  const std::optional<EventTrace> trace = TraceOf(*event);
  if (!trace) return;
  pubsub::Span span = pubsub::CreateSpan(event->topic, trace->create, event->extras->parent_span,
                                         trace->event_id, event->ordering_key, trace->occurred_at);
  if (event->unsent() != nullptr) {
    span.error_type = "expired";
    span.error = "it was not sent in time";
  } else if (!published) {
    span.error_type = "rejected";
    span.error = event->error;
  }
  event_spans->Add(std::move(span));
}

}  // namespace postbox::publisher
