#include "worker/pubsub/traces/trace_wire.h"

#include <cstdint>
#include <variant>

#include "proto/rules/utf8.h"

namespace postbox::pubsub {
namespace {

namespace otlp = opentelemetry::proto;

constexpr std::size_t kMaxText = 1024;

std::string CleanText(std::string_view text) {
  std::string clean(text.substr(0, kMaxText));
  if (IsValidUtf8(clean)) return clean;
  for (char& c : clean) {
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';
  }
  return clean;
}

void AppendBytes(std::uint64_t value, std::string* bytes) {
  for (int shift = 56; shift >= 0; shift -= 8) *bytes += static_cast<char>(value >> shift & 0xff);
}

std::string SpanIdBytes(std::uint64_t id) {
  std::string bytes;
  AppendBytes(id, &bytes);
  return bytes;
}

std::string TraceIdBytes(const TraceContext& context) {
  std::string bytes;
  AppendBytes(context.trace_high, &bytes);
  AppendBytes(context.trace_low, &bytes);
  return bytes;
}

void SetText(std::string_view key, std::string_view text, otlp::common::v1::KeyValue* pair) {
  pair->set_key(std::string(key));
  pair->mutable_value()->set_string_value(CleanText(text));
}

otlp::trace::v1::Span::SpanKind KindOf(SpanKind kind) {
  switch (kind) {
    case SpanKind::kProducer:
      return otlp::trace::v1::Span::SPAN_KIND_PRODUCER;
    case SpanKind::kConsumer:
      return otlp::trace::v1::Span::SPAN_KIND_CONSUMER;
    case SpanKind::kClient:
      break;
  }
  return otlp::trace::v1::Span::SPAN_KIND_CLIENT;
}

void Write(const Span& span, otlp::trace::v1::Span* out) {
  out->set_trace_id(TraceIdBytes(span.context));
  out->set_span_id(SpanIdBytes(span.context.span));
  if (span.parent != 0) out->set_parent_span_id(SpanIdBytes(span.parent));
  out->set_flags(span.context.flags);
  out->set_name(CleanText(span.name));
  out->set_kind(KindOf(span.kind));
  out->set_start_time_unix_nano(static_cast<std::uint64_t>(span.start));
  out->set_end_time_unix_nano(static_cast<std::uint64_t>(span.end));
  for (const SpanAttribute& attribute : span.attributes) {
    otlp::common::v1::KeyValue* pair = out->add_attributes();
    if (const auto* text = std::get_if<std::string>(&attribute.value)) {
      SetText(attribute.name, *text, pair);
    } else {
      pair->set_key(std::string(attribute.name));
      pair->mutable_value()->set_int_value(std::get<std::int64_t>(attribute.value));
    }
  }
  for (const SpanLink& link : span.links) {
    otlp::trace::v1::Span::Link* other = out->add_links();
    other->set_trace_id(TraceIdBytes(link.context));
    other->set_span_id(SpanIdBytes(link.context.span));
    other->set_flags(link.context.flags);
    if (!link.message_id.empty()) {
      SetText("messaging.message.id", link.message_id, other->add_attributes());
    }
  }
  out->set_dropped_links_count(span.dropped_links);
  if (span.error_type.empty()) return;
  SetText("error.type", span.error_type, out->add_attributes());
  out->mutable_status()->set_code(otlp::trace::v1::Status::STATUS_CODE_ERROR);
  out->mutable_status()->set_message(CleanText(span.error));
}

}  // namespace

otlp::collector::trace::v1::ExportTraceServiceRequest MakeTraceRequest(
    const std::string& service_name, const std::vector<Span>& spans) {
  otlp::collector::trace::v1::ExportTraceServiceRequest request;
  otlp::trace::v1::ResourceSpans* of_service = request.add_resource_spans();
  otlp::resource::v1::Resource* service = of_service->mutable_resource();
  SetText("service.name", service_name, service->add_attributes());
  SetText("service.version", POSTBOX_VERSION, service->add_attributes());
  otlp::trace::v1::ScopeSpans* of_scope = of_service->add_scope_spans();
  of_scope->mutable_scope()->set_name("postbox");
  of_scope->mutable_scope()->set_version(POSTBOX_VERSION);
  of_scope->set_schema_url(kTraceSchemaUrl);
  for (const Span& span : spans) Write(span, of_scope->add_spans());
  return request;
}

}  // namespace postbox::pubsub
