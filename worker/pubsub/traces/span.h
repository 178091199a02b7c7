// A span of a trace, and where finished spans go.
//
// Plain header: standard library only.
#ifndef POSTBOX_WORKER_PUBSUB_TRACES_SPAN_H_
#define POSTBOX_WORKER_PUBSUB_TRACES_SPAN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "proto/rules/trace_context.h"

namespace postbox::pubsub {

enum class SpanKind : std::uint8_t { kClient, kProducer, kConsumer };

struct SpanLink {
  TraceContext context;
  std::string message_id;  // empty: not known
};

struct SpanAttribute {
  std::string_view name;  // a literal
  std::variant<std::string, std::int64_t> value;
};

struct Span {
  TraceContext context;      // its trace and its id
  std::uint64_t parent = 0;  // 0: it is a root
  SpanKind kind = SpanKind::kClient;
  std::string name;
  // Nanoseconds since 1970.
  std::int64_t start = 0;
  std::int64_t end = 0;
  std::vector<SpanAttribute> attributes;
  std::vector<SpanLink> links;
  std::uint32_t dropped_links = 0;
  std::string error_type;  // empty: it has not failed
  std::string error;

  void Set(std::string_view attribute, std::string_view value) {
    if (!value.empty()) attributes.push_back({attribute, std::string(value)});
  }
  void Set(std::string_view attribute, std::int64_t value) {
    attributes.push_back({attribute, value});
  }

  // About what it takes in memory.
  std::size_t bytes() const {
    constexpr std::size_t kPerText = sizeof(SpanAttribute);
    std::size_t sum = sizeof *this + name.size() + error.size() + error_type.size() +
                      links.size() * sizeof(SpanLink);
    for (const SpanAttribute& attribute : attributes) {
      const auto* text = std::get_if<std::string>(&attribute.value);
      sum += kPerText + (text == nullptr ? 0 : text->size());
    }
    for (const SpanLink& link : links) sum += link.message_id.size();
    return sum;
  }
};

class SpanSink {
 public:
  virtual ~SpanSink() = default;
  // Any thread. Returns at once, and never fails: what there is no room for is dropped.
  virtual void Add(Span span) = 0;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_TRACES_SPAN_H_
