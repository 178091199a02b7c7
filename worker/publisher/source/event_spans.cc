// See event_spans.h.
#include "worker/publisher/source/event_spans.h"

#include <optional>
#include <utility>

#include "proto/rules/trace_context.h"
#include "worker/pubsub/publish/message_wire.h"
#include "worker/pubsub/traces/messaging_spans.h"

namespace postbox::publisher {

namespace {

// Never destroyed: events are published until the process is gone.
std::shared_ptr<pubsub::SpanSink>& event_spans = *new std::shared_ptr<pubsub::SpanSink>;

}  // namespace

const std::shared_ptr<pubsub::SpanSink>& EventSpans() { return event_spans; }
void UseEventSpans(std::shared_ptr<pubsub::SpanSink> spans) { event_spans = std::move(spans); }

bool TracedAttributes::Take(const EventView& event, std::string_view topic, ClaimedEvent* message) {
  const std::span given(event.attributes, static_cast<std::size_t>(event.attribute_count));
  const std::optional<pubsub::TraceContext> parent = pubsub::FindTraceContext(given);
  if (!parent || !parent->sampled()) return false;
  pubsub::TraceContext create = *parent;
  create.span = pubsub::CreateSpanId(topic, event.id);
  traceparent_ = pubsub::FormatTraceparent(create);
  attributes_.assign(given.begin(), given.end());
  for (auto& [name, value] : attributes_) {
    if (name == pubsub::kTraceNames[0].standard || name == pubsub::kTraceNames[0].of_clients) {
      value = traceparent_;
    }
  }
  message->traced = true;
  message->extras = std::make_unique<EventExtras>();
  message->extras->parent_span = parent->span;
  return true;
}

void AddCreateSpan(ClaimedEvent* event) {
  const bool published = event->status == pubsub::PublishStatus::kPublished;
  if (!published && event->status != pubsub::PublishStatus::kRejected) return;
  if (event->extras == nullptr || event_spans == nullptr) return;
  const auto attributes = pubsub::MessageAttributes(event->encoded);
  const std::optional<pubsub::TraceContext> create = pubsub::FindTraceContext(attributes);
  if (!create) return;  // it was found unreadable afterwards
  const auto* id = pubsub::FindAttribute(attributes, pubsub::kEventId);
  pubsub::Span span = pubsub::CreateSpan(event->topic, *create, event->extras->parent_span,
                                         id == nullptr ? std::string_view() : *id,
                                         event->ordering_key, event->occurred_at);
  if (!published) {
    span.error_type = "rejected";
    span.error = event->error;
  }
  event_spans->Add(std::move(span));
}

}  // namespace postbox::publisher
