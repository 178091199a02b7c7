#include "worker/emulator/faults.h"

#include <algorithm>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace postbox::emulator {
namespace {

const std::map<absl::string_view, Fault::Action>& Actions() {
  static const auto* const kActions = new std::map<absl::string_view, Fault::Action>{
      {"status", Fault::STATUS},       {"abort-stream", Fault::ABORT_STREAM},
      {"stall", Fault::STALL},         {"ping-silence", Fault::PING_SILENCE},
      {"ack-error", Fault::ACK_ERROR}, {"big-trailer", Fault::BIG_TRAILER},
      {"delay", Fault::DELAY},
  };
  return *kActions;
}

bool ParseCode(absl::string_view text, int* code) {
  for (int candidate = 0; candidate <= 16; ++candidate) {
    if (absl::StatusCodeToString(static_cast<absl::StatusCode>(candidate)) == text) {
      *code = candidate;
      return true;
    }
  }
  return absl::SimpleAtoi(text, code) && *code >= 0 && *code <= 16;
}

// Reads a number of 0 and up.
template <class Number>
bool ParseCount(absl::string_view text, Number* number) {
  return absl::SimpleAtoi(text, number) && *number >= 0;
}

// Sets a field that takes a number. The result is as for SetField.
bool SetNumber(absl::string_view key, absl::string_view value, Fault* fault, bool* known) {
  int32_t number = 0;
  int64_t large = 0;
  double fraction = 0;
  if (key == "code") {
    if (!ParseCode(value, &number)) return false;
    fault->set_code(number);
  } else if (key == "count" || key == "skip" || key == "trailer-bytes") {
    if (!ParseCount(value, &large)) return false;
    if (key == "count") fault->set_count(large);
    if (key == "skip") fault->set_skip(large);
    if (key == "trailer-bytes") fault->set_trailer_bytes(large);
  } else if (key == "probability") {
    // "nan" is a number that compares as false.
    if (!absl::SimpleAtod(value, &fraction) || !(fraction > 0 && fraction <= 1)) return false;
    fault->set_probability(fraction);
  } else if (key == "latency-ms") {
    if (!ParseCount(value, &number)) return false;
    fault->set_latency_ms(number);
  } else {
    *known = false;
    return false;
  }
  return true;
}

// Sets the field of one `key=value` (or a bare `key`) of a rule. Returns false if the value is not
// valid for the key, and also sets `*known` to false if there is no such key.
bool SetField(absl::string_view key, absl::string_view value, Fault* fault, bool* known) {
  *known = true;
  if (key == "rpc") {
    fault->set_rpc(std::string(value));
    return !value.empty();
  }
  if (key == "action") {
    const auto action = Actions().find(value);
    if (action == Actions().end()) return false;
    fault->set_action(action->second);
    return true;
  }
  if (key == "message") {
    fault->set_message(std::string(value));
    return true;
  }
  if (key == "after-effect" || key == "partial") {
    if (!value.empty() && value != "true") return false;
    if (key == "partial") fault->set_partial(true);
    if (key == "after-effect") fault->set_after_effect(true);
    return true;
  }
  if (key == "ordering-key") {
    fault->set_ordering_key(std::string(value));
    return !value.empty();
  }
  if (key == "attribute") {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(value, absl::MaxSplits(':', 1));
    fault->set_attribute_key(std::string(parts.first));
    fault->set_attribute_value(std::string(parts.second));
    return !parts.first.empty();
  }
  if (key == "error-info") {
    fault->set_error_info(std::string(value));
    return !value.empty();
  }
  return SetNumber(key, value, fault, known);
}

}  // namespace

bool AsksForMessage(const Fault& fault) {
  return !fault.ordering_key().empty() || !fault.attribute_key().empty();
}

bool Matches(const Fault& fault, const google::pubsub::v1::PubsubMessage& message) {
  if (!fault.ordering_key().empty() && message.ordering_key() != fault.ordering_key()) return false;
  if (fault.attribute_key().empty()) return true;
  const auto attribute = message.attributes().find(fault.attribute_key());
  return attribute != message.attributes().end() &&
         (fault.attribute_value().empty() || attribute->second == fault.attribute_value());
}

absl::Status FaultStatus(const Fault& fault, absl::StatusCode fallback) {
  const auto code = fault.code() == 0 ? fallback : static_cast<absl::StatusCode>(fault.code());
  return absl::Status(code, fault.message().empty() ? "injected fault" : fault.message());
}

absl::StatusOr<Fault> ParseFault(absl::string_view spec) {
  Fault fault;
  bool has_action = false;
  for (const absl::string_view part : absl::StrSplit(spec, ',')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    bool known = false;
    if (!SetField(pair.first, pair.second, &fault, &known)) {
      return absl::InvalidArgumentError(known
                                            ? absl::StrCat("fault: bad value in \"", part, "\"")
                                            : absl::StrCat("fault: unknown key in \"", part, "\""));
    }
    has_action = has_action || pair.first == "action";
  }
  if (!has_action && fault.code() == 0) {
    if (fault.latency_ms() == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("fault \"", spec, "\" has no effect: give action, code or latency-ms"));
    }
    fault.set_action(Fault::DELAY);
  }
  return fault;
}

Faults::Faults() : random_(std::random_device()()) {}

void Faults::Add(const Fault& fault) {
  const std::lock_guard<std::mutex> lock(mu_);
  rules_.push_back({fault, fault.skip(), fault.count() > 0 ? fault.count() : -1});
  any_ = true;
}

void Faults::Clear() {
  const std::lock_guard<std::mutex> lock(mu_);
  rules_.clear();
  any_ = false;
  ++clears_;
}

int64_t Faults::waiting() {
  const std::lock_guard<std::mutex> lock(mu_);
  return static_cast<int64_t>(rules_.size());
}

std::optional<Fault> Faults::Fire(absl::string_view rpc,
                                  std::initializer_list<Fault::Action> actions,
                                  absl::FunctionRef<bool(const Fault&)> matches, int64_t* clears) {
  if (!any_.load(std::memory_order_relaxed)) return std::nullopt;
  const std::lock_guard<std::mutex> lock(mu_);
  for (auto rule = rules_.begin(); rule != rules_.end(); ++rule) {
    const Fault& fault = rule->fault;
    if (!fault.rpc().empty() && fault.rpc() != rpc) continue;
    if (std::find(actions.begin(), actions.end(), fault.action()) == actions.end()) continue;
    if (!matches(fault)) continue;
    if (fault.probability() > 0 &&
        std::uniform_real_distribution<>(0, 1)(random_) >= fault.probability()) {
      continue;
    }
    if (rule->to_skip > 0) {
      --rule->to_skip;
      continue;
    }
    ++fired_;
    if (clears != nullptr) *clears = clears_;
    Fault fired = fault;
    if (rule->left > 0 && --rule->left == 0) rules_.erase(rule);
    any_ = !rules_.empty();
    return fired;
  }
  return std::nullopt;
}

}  // namespace postbox::emulator
