// Checks a message against every limit of Pub/Sub (limits.h), before it is stored and again before
// it is sent.
//
// Plain header: standard library only. outbox_emit uses it to refuse an event that Pub/Sub would
// refuse later, in the transaction that writes the event. The publisher uses it for rows that were
// written in another way (a plain INSERT, an adopted table), so that such an event is rejected
// alone and does not fail the request that it would be part of.

#ifndef POSTBOX_PROTO_RULES_MESSAGE_CHECK_H_
#define POSTBOX_PROTO_RULES_MESSAGE_CHECK_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "proto/rules/attributes.h"
#include "proto/rules/limits.h"
#include "proto/rules/utf8.h"
#include "proto/rules/wire_size.h"

namespace postbox::pubsub {

// What is wrong with a message. The three texts can be the message, detail and hint of an error
// report: a lower-case phrase without a full stop, and two sentences.
struct MessageProblem {
  enum class Kind {
    kInvalidUtf8,       // SQLSTATE 22021 character_not_in_repertoire
    kLimitExceeded,     // SQLSTATE 54000 program_limit_exceeded
    kInvalidAttribute,  // SQLSTATE 22023 invalid_parameter_value
    kEmptyMessage,      // SQLSTATE 22023
  };
  Kind kind;
  std::string what;   // which part of the message, with its size: "ordering key is 1025 bytes long"
  std::string limit;  // the rule it breaks: "Pub/Sub allows an ordering key of at most 1024 bytes."
  std::string hint;   // what to do about it

  std::string Text() const { return what + ": " + limit; }
};

namespace internal {

inline std::string Quoted(std::string_view name) { return Shown(name, 64); }

inline std::string Bytes(std::size_t count) {
  return std::to_string(count) + (count == 1 ? " byte" : " bytes");
}

inline std::optional<MessageProblem> CheckOrderingKey(std::string_view ordering_key) {
  using Kind = MessageProblem::Kind;
  if (ordering_key.size() > kMaxOrderingKeyBytes) {
    return MessageProblem{
        Kind::kLimitExceeded, "ordering key is " + Bytes(ordering_key.size()) + " long",
        "Pub/Sub allows an ordering key of at most " + Bytes(kMaxOrderingKeyBytes) + ".",
        "The aggregate id is the ordering key. Use a shorter id, for example a UUID or a hash of "
        "the long one."};
  }
  if (const std::size_t bad = FirstInvalidUtf8(ordering_key); bad != ordering_key.size()) {
    return MessageProblem{Kind::kInvalidUtf8,
                          "ordering key is not valid UTF-8 at byte " + std::to_string(bad),
                          "Pub/Sub takes an ordering key only as UTF-8 text.",
                          "Use an aggregate id that is valid UTF-8."};
  }
  return std::nullopt;
}

inline std::optional<MessageProblem> CheckAttribute(std::string_view key, std::string_view value) {
  using Kind = MessageProblem::Kind;
  if (key.empty()) {
    return MessageProblem{Kind::kInvalidAttribute, "attribute has an empty name",
                          "Pub/Sub needs a name for every attribute.",
                          "Give the attribute a name or leave it out."};
  }
  if (key.size() > kMaxAttributeKeyBytes) {
    return MessageProblem{
        Kind::kLimitExceeded,
        "name of attribute " + Quoted(key) + " is " + Bytes(key.size()) + " long",
        "Pub/Sub allows an attribute name of at most " + Bytes(kMaxAttributeKeyBytes) + ".",
        "Use a shorter name."};
  }
  if (!IsValidUtf8(key)) {
    return MessageProblem{
        Kind::kInvalidUtf8, "name of attribute " + Quoted(key) + " is not valid UTF-8",
        "Pub/Sub takes attributes only as UTF-8 text.", "Use a name that is valid UTF-8."};
  }
  if (key.starts_with(kReservedPrefix) && !IsTraceNameOfClients(key)) {
    return MessageProblem{
        Kind::kInvalidAttribute,
        "name of attribute " + Quoted(key) + " begins with \"" + kReservedPrefix + "\"",
        "Pub/Sub reserves attribute names that begin with \"goog\".", "Use another name."};
  }
  if (value.size() > kMaxAttributeValueBytes) {
    return MessageProblem{
        Kind::kLimitExceeded,
        "value of attribute " + Quoted(key) + " is " + Bytes(value.size()) + " long",
        "Pub/Sub allows an attribute value of at most " + Bytes(kMaxAttributeValueBytes) + ".",
        "Put long values into the payload."};
  }
  if (!IsValidUtf8(value)) {
    return MessageProblem{
        Kind::kInvalidUtf8, "value of attribute " + Quoted(key) + " is not valid UTF-8",
        "Pub/Sub takes attributes only as UTF-8 text.",
        "Put binary values into the payload, or encode them, for example as base64."};
  }
  return std::nullopt;
}

}  // namespace internal

// Checks one message. `attributes` is a range of pairs of strings with distinct keys: all
// attributes of the message, the standard ones included (attributes.h). `topic_length` is the
// length of the full topic name; leave it out if the topic is not known yet. Returns nothing if
// Pub/Sub would take the message.
template <class AttributeRange>
std::optional<MessageProblem> CheckMessage(std::string_view data, const AttributeRange& attributes,
                                           std::string_view ordering_key,
                                           std::size_t topic_length = kMaxTopicNameBytes) {
  using Kind = MessageProblem::Kind;
  using internal::Bytes;

  if (auto problem = internal::CheckOrderingKey(ordering_key)) return problem;
  std::size_t count = 0;
  for (const auto& attribute : attributes) {
    ++count;
    if (auto problem = internal::CheckAttribute(attribute.first, attribute.second)) return problem;
  }
  if (count > kMaxAttributes) {
    return MessageProblem{Kind::kLimitExceeded,
                          "message has " + std::to_string(count) + " attributes",
                          "Pub/Sub allows at most " + std::to_string(kMaxAttributes) +
                              " attributes in a message, the standard ones of Postbox included.",
                          "Put what consumers do not filter by into the payload."};
  }
  if (count == 0 && data.empty()) {
    return MessageProblem{Kind::kEmptyMessage, "message has neither data nor attributes",
                          "Pub/Sub needs non-empty data or at least one attribute.",
                          "Give the event a payload."};
  }

  const std::size_t size = EmptyRequestSize(topic_length) +
                           MessageSizeInRequest(MessageSize(data, attributes, ordering_key));
  if (size > kMaxRequestBytes) {
    return MessageProblem{Kind::kLimitExceeded,
                          "message is " + Bytes(size) + " long (payload " + Bytes(data.size()) +
                              ", the rest is attributes and framing)",
                          "Pub/Sub allows a publish request of at most " + Bytes(kMaxRequestBytes) +
                              ", topic and framing included.",
                          "Store the large part elsewhere, for example in Cloud Storage, and put a "
                          "reference into the payload."};
  }
  return std::nullopt;
}

}  // namespace postbox::pubsub

#endif  // POSTBOX_PROTO_RULES_MESSAGE_CHECK_H_
