#include "worker/pubsub/traces/messaging_spans.h"

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <utility>

namespace postbox::pubsub {
namespace {

constexpr std::int64_t kNanosPerMicro = 1000;

// The part of projects/P/topics/T or projects/P/subscriptions/S that stands at `index`; the whole
// name if it has another form.
std::string_view PartOf(std::string_view resource, int index) {
  std::string_view rest = resource;
  for (int i = 0; i < index; ++i) {
    const std::size_t slash = rest.find('/');
    if (slash == std::string_view::npos) return resource;
    rest.remove_prefix(slash + 1);
  }
  return rest.substr(0, rest.find('/'));
}

Span MakeSpan(const MessagingOperation& operation, std::string_view resource) {
  constexpr int kProject = 1;
  constexpr int kId = 3;
  const std::string_view destination = PartOf(resource, kId);
  Span span;
  span.kind = operation.kind;
  span.name = std::string(operation.name) + " " + std::string(destination);
  span.Set("messaging.system", "gcp_pubsub");
  span.Set("messaging.operation.name", operation.name);
  span.Set("messaging.operation.type", operation.type);
  span.Set("messaging.destination.name", destination);
  if (resource.find("/subscriptions/") != std::string_view::npos) {
    span.Set("messaging.destination.subscription.name", destination);
  }
  span.Set("gcp.project_id", PartOf(resource, kProject));
  return span;
}

std::uint64_t RandomNumber() {
  thread_local std::mt19937_64 engine = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  return engine();
}

}  // namespace

std::int64_t SpanTime() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::int64_t SpanTime(std::chrono::steady_clock::time_point time) {
  const auto ago = std::chrono::steady_clock::now() - time;
  return SpanTime() - std::chrono::duration_cast<std::chrono::nanoseconds>(ago).count();
}

std::int64_t SpanTimeOfMicros(std::int64_t micros) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / kNanosPerMicro;
  return std::clamp<std::int64_t>(micros, 1, kMost) * kNanosPerMicro;  // 0 means that none is known
}

std::uint64_t NewSpanId() {
  std::uint64_t id = 0;
  while (id == 0) id = RandomNumber();
  return id;
}

Span CreateSpan(std::string_view topic, const TraceContext& event, std::uint64_t parent,
                std::string_view event_id, std::string_view ordering_key,
                std::int64_t occurred_at) {
  Span span = MakeSpan(kCreate, topic);
  span.context = event;
  span.parent = parent;
  span.start = span.end = SpanTimeOfMicros(occurred_at);
  span.Set(kOrderingKeyAttribute, ordering_key);
  span.Set(kEventIdAttribute, event_id);
  return span;
}

Span ProcessSpan(std::string_view subscription, const TraceContext& event,
                 std::string_view message_id) {
  Span span = MakeSpan(kProcess, subscription);
  span.context = event;
  span.context.span = NewSpanId();
  span.parent = event.span;
  span.links.push_back({event, ""});
  span.Set(kMessageIdAttribute, message_id);
  return span;
}

Span BatchSpan(const MessagingOperation& operation, std::string_view resource,
               std::vector<SpanLink> links, std::size_t messages, std::int64_t start) {
  Span span = MakeSpan(operation, resource);
  const TraceContext first = links.front().context;
  const bool one_trace = std::all_of(links.begin(), links.end(), [&first](const SpanLink& link) {
    return link.context.SameTrace(first);
  });
  span.context = first;
  if (one_trace) {
    span.parent = first.span;
  } else {
    span.context.trace_high = NewSpanId();
    span.context.trace_low = NewSpanId();
  }
  span.context.span = NewSpanId();
  if (messages == 1) {
    span.Set(kMessageIdAttribute, links.front().message_id);
  } else {
    span.Set("messaging.batch.message_count", static_cast<std::int64_t>(messages));
  }
  if (links.size() > kMaxSpanLinks) {
    span.dropped_links = static_cast<std::uint32_t>(links.size() - kMaxSpanLinks);
    links.resize(kMaxSpanLinks);
  }
  span.links = std::move(links);
  span.start = start;
  span.end = std::max(SpanTime(), start);
  return span;
}

}  // namespace postbox::pubsub
