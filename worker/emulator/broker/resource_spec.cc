#include "worker/emulator/broker/resource_spec.h"

#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace postbox::emulator {
namespace {

namespace pb = google::pubsub::v1;

std::string FullName(absl::string_view project, absl::string_view collection,
                     absl::string_view name) {
  if (absl::StartsWith(name, "projects/")) return std::string(name);
  return absl::StrCat("projects/", project, "/", collection, "/", name);
}

void SetMillis(int64_t millis, google::protobuf::Duration* duration) {
  duration->set_seconds(millis / 1000);
  duration->set_nanos(static_cast<int32_t>(millis % 1000) * 1'000'000);
}

bool SetOption(absl::string_view project, absl::string_view key, absl::string_view value,
               pb::Subscription* subscription) {
  if (key == "ordered" || key == "exactly-once" || key == "retain-acked") {
    if (!value.empty()) return false;
    if (key == "ordered") subscription->set_enable_message_ordering(true);
    if (key == "exactly-once") subscription->set_enable_exactly_once_delivery(true);
    if (key == "retain-acked") subscription->set_retain_acked_messages(true);
    return true;
  }
  int32_t number = 0;
  if (key == "ack-deadline") {
    if (!absl::SimpleAtoi(value, &number)) return false;
    subscription->set_ack_deadline_seconds(number);
    return true;
  }
  const std::pair<absl::string_view, absl::string_view> pair =
      absl::StrSplit(value, absl::MaxSplits(':', 1));
  if (key == "dead-letter") {
    if (pair.first.empty() || !absl::SimpleAtoi(pair.second, &number)) return false;
    pb::DeadLetterPolicy* policy = subscription->mutable_dead_letter_policy();
    policy->set_dead_letter_topic(FullName(project, "topics", pair.first));
    policy->set_max_delivery_attempts(number);
    return true;
  }
  if (key == "retry") {
    int64_t least = 0;
    int64_t most = 0;
    if (!absl::SimpleAtoi(pair.first, &least) || !absl::SimpleAtoi(pair.second, &most)) {
      return false;
    }
    SetMillis(least, subscription->mutable_retry_policy()->mutable_minimum_backoff());
    SetMillis(most, subscription->mutable_retry_policy()->mutable_maximum_backoff());
    return true;
  }
  return false;
}

absl::Status CreateTopic(const std::string& name, Broker* broker) {
  pb::Topic topic;
  topic.set_name(name);
  const absl::Status status = broker->topics()->Create(topic).status();
  return absl::IsAlreadyExists(status) ? absl::OkStatus() : status;
}

}  // namespace

absl::StatusOr<pb::Subscription> ParseSubscription(absl::string_view project,
                                                   absl::string_view spec) {
  // The filter may have commas, so it is the last option.
  const std::pair<absl::string_view, absl::string_view> halves =
      absl::StrSplit(spec, absl::MaxSplits(",filter=", 1));
  const std::vector<absl::string_view> parts = absl::StrSplit(halves.first, ',');
  const std::vector<absl::string_view> names = absl::StrSplit(parts[0], '=');
  if (names.size() != 2 || names[0].empty() || names[1].empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("subscription \"", spec, "\" must be NAME=TOPIC[,option...]"));
  }
  pb::Subscription subscription;
  subscription.set_name(FullName(project, "subscriptions", names[0]));
  subscription.set_topic(FullName(project, "topics", names[1]));
  subscription.set_filter(std::string(halves.second));
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> option =
        absl::StrSplit(parts[i], absl::MaxSplits('=', 1));
    if (!SetOption(project, option.first, option.second, &subscription)) {
      return absl::InvalidArgumentError(
          absl::StrCat("subscription \"", spec, "\": unknown or bad option \"", parts[i], "\""));
    }
  }
  return subscription;
}

absl::Status CreateResources(const std::string& project, const std::vector<std::string>& topics,
                             const std::vector<std::string>& subscriptions, Broker* broker) {
  for (const std::string& topic : topics) {
    if (auto s = CreateTopic(FullName(project, "topics", topic), broker); !s.ok()) return s;
  }
  std::set<std::string> made;
  for (const std::string& spec : subscriptions) {
    const auto subscription = ParseSubscription(project, spec);
    if (!subscription.ok()) return subscription.status();
    // One of an earlier run stays as it is. Two of one name on the command line are an error.
    const bool is_there = broker->subscriptions()->Get(subscription->name()).ok();
    if (is_there && !made.contains(subscription->name())) continue;
    if (auto s = CreateTopic(subscription->topic(), broker); !s.ok()) return s;
    if (subscription->has_dead_letter_policy()) {
      if (auto s = CreateTopic(subscription->dead_letter_policy().dead_letter_topic(), broker);
          !s.ok()) {
        return s;
      }
    }
    if (auto s = broker->subscriptions()->Create(*subscription).status(); !s.ok()) return s;
    made.insert(subscription->name());
  }
  return absl::OkStatus();
}

}  // namespace postbox::emulator
