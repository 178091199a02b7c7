#include "worker/puller/process_spans.h"

#include <optional>
#include <string_view>
#include <utility>

#include "proto/rules/trace_context.h"
#include "worker/pubsub/traces/messaging_spans.h"

namespace postbox::puller {
namespace {

// As the span says it; nothing if the event was not tried, or is tried again at once.
std::optional<std::string_view> OutcomeOf(const Disposition& disposition) {
  switch (disposition.kind) {
    case Disposition::kSettled:
      return disposition.outcome;
    case Disposition::kFailed:
      return "failed";
    case Disposition::kDeadLetter:
      return "dead_letter_topic";
    case Disposition::kAlone:
    case Disposition::kHeld:
    case Disposition::kBehind:
      break;
  }
  return std::nullopt;
}

// The SQLSTATE of what has failed. The inbox is at fault if there is none: its connection broke.
std::string_view ErrorTypeOf(const Disposition& disposition) {
  if (disposition.kind == Disposition::kDeadLetter) return disposition.failure.sqlstate;
  if (disposition.kind == Disposition::kSettled) return disposition.sqlstate;
  if (disposition.sqlstate.empty()) return "connection";
  return disposition.sqlstate;
}

}  // namespace

void AddProcessSpans(const SubscriptionConfig& config, const std::vector<Delivery>& batch,
                     const std::vector<Disposition>& dispositions,
                     std::chrono::steady_clock::duration took) {
  const std::int64_t end = pubsub::SpanTime();
  const std::int64_t nanos = std::chrono::duration_cast<std::chrono::nanoseconds>(took).count();
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const pubsub::ReceivedMessage& message = batch[i].message;
    const std::optional<std::string_view> outcome = OutcomeOf(dispositions[i]);
    if (!outcome) continue;
    const auto trace = pubsub::FindTraceContext(message.attributes);
    if (!trace || !trace->sampled()) continue;
    pubsub::Span span = pubsub::ProcessSpan(config.subscription, *trace, message.message_id);
    span.start = end - nanos;
    span.end = end;
    span.Set(pubsub::kOrderingKeyAttribute, message.ordering_key);
    span.Set(pubsub::kEventIdAttribute, batch[i].event.event_id.value_or(std::string_view()));
    span.Set(pubsub::kOutcomeAttribute, *outcome);
    span.error_type = ErrorTypeOf(dispositions[i]);
    config.spans->Add(std::move(span));
  }
}

}  // namespace postbox::puller
