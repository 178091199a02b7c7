// The filter of a subscription: a text is refused with a reason, or it is an expression that can be
// negated and put into others.
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/quiet_protobuf.h"
#include "worker/emulator/rules/filter.h"
#include "worker/emulator/rules/service_limits.h"

using postbox::emulator::Filter;
using postbox::fuzz::Input;

namespace {

// The result of `text`, which must be a valid filter unless it is too long.
bool Matches(const std::string& text, const google::pubsub::v1::PubsubMessage& message,
             bool if_too_long) {
  if (text.size() > postbox::emulator::kMaxFilterBytes) return if_too_long;
  const auto filter = Filter::Parse(text);
  FUZZ_CHECK(filter.ok(), text);
  return filter->Matches(message);
}

}  // namespace

// A filter; then attributes, a line for each key and each value.
FUZZ(Input* input) {
  postbox::fuzz::QuietProtobuf();
  const std::string text(input->Line());
  google::pubsub::v1::PubsubMessage message;
  while (!input->empty()) {
    const std::string key(input->Line());
    (*message.mutable_attributes())[key] = std::string(input->Line());
  }
  const auto filter = Filter::Parse(text);
  if (!filter.ok()) {
    FUZZ_CHECK(filter.status().message().find("filter") != std::string::npos, text);
    return;
  }
  const bool matches = filter->Matches(message);
  FUZZ_CHECK(filter->Matches(message) == matches, text);
  FUZZ_CHECK(Matches("(" + text + ")", message, matches) == matches, text);
  FUZZ_CHECK(Matches("NOT (" + text + ")", message, !matches) == !matches, text);
  FUZZ_CHECK(Matches("-(-(" + text + "))", message, matches) == matches, text);
  FUZZ_CHECK(Matches("(" + text + ") AND attributes:none", message, false) ==
                 (matches && message.attributes().contains("none")),
             text);
  FUZZ_CHECK(Matches("NOT attributes:none OR (" + text + ")", message, true) ==
                 (matches || !message.attributes().contains("none")),
             text);
}
