// The context of a trace that travels with an event: W3C Trace Context, in the attribute
// `traceparent` or Google's name for it (attributes.h).
//
// Plain header: standard library only.
//
// An event is emitted in a span of the caller, which `traceparent` of the stored event names. When
// the event is published with traces on, its message names the span that stands for the event
// itself, `create`: the same trace, and the id that CreateSpanId() makes of the topic and the id of
// the event. So emitting an event costs nothing more, both ids are at hand whenever the event is
// sent, no second id must be stored, and an event that is sent again has the same span. Events that
// a plain INSERT or a trigger wrote have one, too.

#ifndef POSTBOX_PROTO_RULES_TRACE_CONTEXT_H_
#define POSTBOX_PROTO_RULES_TRACE_CONTEXT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "proto/rules/attributes.h"

namespace postbox::pubsub {

struct TraceContext {
  static constexpr std::uint8_t kSampled = 1;
  static constexpr std::uint8_t kRandom = 2;  // the trace id was made at random
  static constexpr std::size_t kTextSize = 55;

  // As numbers: the first byte is the highest one.
  std::uint64_t trace_high = 0;
  std::uint64_t trace_low = 0;
  std::uint64_t span = 0;
  std::uint8_t flags = 0;

  bool sampled() const { return (flags & kSampled) != 0; }
  bool SameTrace(const TraceContext& other) const {
    return trace_high == other.trace_high && trace_low == other.trace_low;
  }
  friend bool operator==(const TraceContext&, const TraceContext&) = default;
};

namespace internal {

// Lower-case digits only, as the format has them.
constexpr bool ReadHex(std::string_view digits, std::uint64_t* value) {
  *value = 0;
  for (const char c : digits) {
    unsigned digit = 0;
    if (c >= '0' && c <= '9') {
      digit = static_cast<unsigned>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      digit = static_cast<unsigned>(c - 'a') + 10;
    } else {
      return false;
    }
    *value = *value << 4 | digit;
  }
  return true;
}

inline void AppendHex(std::uint64_t value, int digits, std::string* text) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) {
    *text += "0123456789abcdef"[value >> shift & 15];
  }
}

}  // namespace internal

// Reads "00-<trace id>-<parent id>-<flags>". A later version may go on behind that with "-". Of the
// flags only those that version 00 knows are kept. Nothing if the text has another form.
constexpr std::optional<TraceContext> ParseTraceparent(std::string_view text) {
  constexpr std::size_t kTrace = 3;
  constexpr std::size_t kSpan = 36;
  constexpr std::size_t kFlags = 53;
  if (text.size() < TraceContext::kTextSize || text[kTrace - 1] != '-' || text[kSpan - 1] != '-' ||
      text[kFlags - 1] != '-') {
    return std::nullopt;
  }
  std::uint64_t version = 0;
  std::uint64_t flags = 0;
  TraceContext context;
  if (!internal::ReadHex(text.substr(0, 2), &version) ||
      !internal::ReadHex(text.substr(kTrace, 16), &context.trace_high) ||
      !internal::ReadHex(text.substr(kTrace + 16, 16), &context.trace_low) ||
      !internal::ReadHex(text.substr(kSpan, 16), &context.span) ||
      !internal::ReadHex(text.substr(kFlags, 2), &flags)) {
    return std::nullopt;
  }
  const bool longer = text.size() > TraceContext::kTextSize;
  if (version == 0xff || (longer && (version == 0 || text[TraceContext::kTextSize] != '-'))) {
    return std::nullopt;
  }
  if ((context.trace_high == 0 && context.trace_low == 0) || context.span == 0) {
    return std::nullopt;
  }
  context.flags =
      static_cast<std::uint8_t>(flags & (TraceContext::kSampled | TraceContext::kRandom));
  return context;
}

inline std::string FormatTraceparent(const TraceContext& context) {
  std::string text = "00-";
  text.reserve(TraceContext::kTextSize);
  internal::AppendHex(context.trace_high, 16, &text);
  internal::AppendHex(context.trace_low, 16, &text);
  text += '-';
  internal::AppendHex(context.span, 16, &text);
  text += '-';
  internal::AppendHex(context.flags, 2, &text);
  return text;
}

// The context that the attributes of a message name. Of two names that of W3C counts, unless its
// value has another form.
template <class AttributeRange>
std::optional<TraceContext> FindTraceContext(const AttributeRange& attributes) {
  std::optional<TraceContext> of_clients;
  for (const auto& [name, value] : attributes) {
    if (name == kTraceNames[0].standard) {
      if (const auto context = ParseTraceparent(value)) return context;
    } else if (name == kTraceNames[0].of_clients) {
      of_clients = ParseTraceparent(value);
    }
  }
  return of_clients;
}

// The id of the span `create` of an event on a topic. Two topics that an event goes to have
// different ones.
constexpr std::uint64_t CreateSpanId(std::string_view topic, std::string_view event_id) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  const auto add = [&hash](unsigned char byte) { hash = (hash ^ byte) * 0x100000001b3ULL; };
  for (const char c : topic) add(static_cast<unsigned char>(c));
  add(0);
  for (const char c : event_id) add(static_cast<unsigned char>(c));
  // Ids that differ in their last byte differ everywhere then (the finalizer of MurmurHash3).
  hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccdULL;
  hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53ULL;
  hash ^= hash >> 33;
  return hash == 0 ? 1 : hash;
}

}  // namespace postbox::pubsub

#endif  // POSTBOX_PROTO_RULES_TRACE_CONTEXT_H_
