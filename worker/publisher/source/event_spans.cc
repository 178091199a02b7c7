// See event_spans.h.
#include "worker/publisher/source/event_spans.h"

#include <optional>
#include <utility>

#include "proto/rules/trace_context.h"
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
  message->extras->create = pubsub::CreateSpan(topic, create, parent->span, event.id,
                                               message->ordering_key, event.occurred_at_micros);
  return true;
}

void AddCreateSpan(ClaimedEvent* event) {
  const bool published = event->status == pubsub::PublishStatus::kPublished;
  if (!published && event->status != pubsub::PublishStatus::kRejected) return;
  if (event->extras == nullptr || !event->extras->create || event_spans == nullptr) return;
  std::optional<pubsub::Span>& create = event->extras->create;
  if (!published) {
    create->error_type = "rejected";
    create->error = event->error;
  }
  event_spans->Add(std::move(*create));
  create.reset();
}

}  // namespace postbox::publisher
