#include "worker/cli/provision/desired.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <utility>

#include "proto/rules/limits.h"
#include "proto/rules/resource_name.h"
#include "proto/rules/utf8.h"

namespace postbox::cli {
namespace {

constexpr int64_t kDefaultAckDeadline = 60;
constexpr int64_t kMostExpiration = 365LL * 86400;
constexpr char kNone[] = "none";
constexpr char kDlq[] = ".dlq";

bool IsLabelCharacter(char c) {
  return static_cast<unsigned char>(c) >= 0x80 || (c >= 'a' && c <= 'z') ||
         (c >= '0' && c <= '9') || c == '_' || c == '-';
}

// What is wrong with the key or value of a label, or "".
std::string CheckLabelText(const std::string& text) {
  const auto characters = std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  });
  if (static_cast<size_t>(characters) > pubsub::kMaxLabelLength) {
    return "it has more than " + std::to_string(pubsub::kMaxLabelLength) + " characters";
  }
  if (std::all_of(text.begin(), text.end(), IsLabelCharacter)) return "";
  return "allowed are lower-case letters, digits, _ and -";
}

// projects/P/locations/L/keyRings/R/cryptoKeys/K
bool IsKeyName(const std::string& name) {
  constexpr const char* kParts[] = {"projects", "locations", "keyRings", "cryptoKeys"};
  std::istringstream stream(name + "/");
  std::vector<std::string> parts;
  for (std::string part; std::getline(stream, part, '/');) parts.push_back(part);
  if (parts.size() != 2 * std::size(kParts)) return false;
  for (size_t i = 0; i < std::size(kParts); ++i) {
    if (parts[2 * i] != kParts[i] || parts[2 * i + 1].empty()) return false;
    if (parts[2 * i + 1].find_first_of(" \"'$`\\") != std::string::npos) return false;
  }
  return true;
}

bool IsMember(const std::string& member) {
  if (member == "allUsers" || member == "allAuthenticatedUsers") return true;
  if (member.find_first_of(" \"'$`\\") != std::string::npos) return false;
  for (const char* kind :
       {"user:", "serviceAccount:", "group:", "domain:", "principal://", "principalSet://",
        "projectOwner:", "projectEditor:", "projectViewer:"}) {
    if (member.starts_with(kind) && member.size() > std::string_view(kind).size()) return true;
  }
  return false;
}

// What a subscription says about dead letters; the rest follows when all of them are known.
struct DeadLetters {
  bool given = false;
  bool none = false;
  std::string topic;                        // full name; empty: that of the subscription's topic
  std::optional<std::string> subscription;  // full name; empty text: it has none
  int64_t attempts = pubsub::kDefaultDeliveryAttempts;
};

class Builder {
 public:
  Builder(std::string project, std::string directory, Problems* problems)
      : directory_(std::move(directory)), problems_(problems) {
    desired_.project = std::move(project);
  }

  Desired Build(const Json& document) {
    Section top(document, "", problems_);
    const std::optional<std::string> project = top.Text("project");
    number_ = top.Text("project_number").value_or("");
    if (!number_.empty() && number_.find_first_not_of("0123456789") != std::string::npos) {
      top.Complain("project_number", "allowed are digits only");
    }
    if (!number_.empty() && project && *project != desired_.project) {
      top.Complain("project_number",
                   "it is the number of project " + *project + ", and --project names another one");
    }
    top.ForEach("schemas", [&](const Json& one, const std::string& path) { AddSchema(one, path); });
    top.ForEach("topics", [&](const Json& one, const std::string& path) { AddTopic(one, path); });
    top.ForEach("subscriptions",
                [&](const Json& one, const std::string& path) { AddSubscription(one, path); });
    top.End();
    // A dead-letter topic has no other one by default.
    for (const DeadLetters& one : dead_letters_) {
      if (!one.topic.empty()) dead_letter_topics_.insert(one.topic);
    }
    for (size_t i = 0; i < dead_letters_.size(); ++i) AddDeadLetters(i);
    if (lacks_number_) {
      desired_.warnings.emplace_back(
          "project_number is missing, so the Pub/Sub service agent is not granted the rights that "
          "dead letters need: without them Pub/Sub moves no message");
    }
    return std::move(desired_);
  }

 private:
  // The full name of the resource that this section is about. False if it cannot be used.
  bool TakeName(Section* section, const std::string& collection, std::string* name) {
    const std::string given = section->RequiredText("name");
    if (given.empty()) return false;
    std::string problem;
    if (collection == "topics") problem = pubsub::CheckTopicName(given);
    if (collection == "subscriptions") problem = pubsub::CheckSubscriptionName(given);
    if (collection == "schemas") problem = pubsub::CheckSchemaName(given);
    if (problem.empty()) *name = pubsub::internal::FullName(desired_.project, collection, given);
    if (problem.empty() && !names_.insert(*name).second) problem = "the name occurs twice";
    if (!problem.empty()) section->Complain("name", problem);
    return problem.empty();
  }

  void WarnOfName(const Section& section, const std::string& problem, const std::string& better) {
    if (problem.empty()) return;
    desired_.warnings.push_back(section.PathOf("name") + ": " + problem + "; better: " + better);
  }

  std::string TopicReference(Section* section, const std::string& key, const std::string& given) {
    const std::string problem = pubsub::CheckTopicName(given);
    if (!problem.empty()) section->Complain(key, problem);
    return problem.empty() ? pubsub::TopicName(desired_.project, given) : "";
  }

  void AddSchema(const Json& json, const std::string& path) {
    Section section(json, path, problems_);
    pb::Schema schema;
    std::string name;
    if (TakeName(&section, "schemas", &name)) schema.set_name(name);
    section.Require("type");
    const std::optional<std::string> type = section.OneOf("type", {"avro", "protocol_buffer"});
    schema.set_type(type == "avro" ? pb::Schema::AVRO : pb::Schema::PROTOCOL_BUFFER);
    const std::optional<std::string> definition = section.TextOfLines("definition");
    const std::optional<std::string> file = section.Text("definition_file");
    if (section.Value("definition") != nullptr && section.Value("definition_file") != nullptr) {
      section.Complain("definition", "only one of definition and definition_file is allowed");
    } else if (file) {
      ReadDefinition(section, *file, &schema);
    } else if (definition && !definition->empty()) {
      schema.set_definition(*definition);
    } else if (section.Value("definition_file") == nullptr) {
      section.Complain("definition", "this key or definition_file is needed");
    }
    if (schema.definition().size() > pubsub::kMaxSchemaBytes) {
      section.Complain("definition", "Pub/Sub allows " + std::to_string(pubsub::kMaxSchemaBytes) +
                                         " bytes at most");
    }
    section.End();
    desired_.schemas.push_back(std::move(schema));
  }

  void ReadDefinition(const Section& section, const std::string& file, pb::Schema* schema) {
    const std::filesystem::path path = std::filesystem::path(directory_) / file;
    std::error_code error;
    std::ifstream stream;
    if (std::filesystem::is_regular_file(path, error)) stream.open(path, std::ios::binary);
    std::string text(pubsub::kMaxSchemaBytes + 1, '\0');
    if (stream) {
      stream.read(text.data(), static_cast<std::streamsize>(text.size()));
      text.resize(static_cast<size_t>(stream.gcount()));
    }
    if (!stream.is_open() || stream.bad()) {
      section.Complain("definition_file", "the file " + path.string() + " cannot be read");
    } else if (!pubsub::IsValidUtf8(text) || text.empty()) {
      section.Complain("definition_file", "the file " + path.string() + " is empty or not UTF-8");
    } else {
      schema->set_definition(text);
    }
  }

  template <class Resource>
  void TakeLabels(Section* section, Wanted<Resource>* wanted) {
    const auto labels = section->TextMap("labels");
    if (!labels) return;
    wanted->fields.emplace_back("labels");
    if (labels->size() > pubsub::kMaxLabels) {
      section->Complain("labels",
                        "Pub/Sub allows " + std::to_string(pubsub::kMaxLabels) + " labels at most");
    }
    for (const auto& [key, value] : *labels) {
      std::string problem = CheckLabelText(key);
      const bool letter = !key.empty() && IsLabelCharacter(key[0]) &&
                          std::string_view("0123456789_-").find(key[0]) == std::string_view::npos;
      if (problem.empty() && !letter) problem = "a key begins with a lower-case letter";
      if (problem.empty()) problem = CheckLabelText(value);
      if (!problem.empty()) section->Complain("labels." + key, problem);
      (*wanted->resource.mutable_labels())[key] = value;
    }
  }

  void TakeMembers(Section* section, const std::string& key, const std::string& resource,
                   const std::string& role) {
    const auto members = section->Texts(key);
    if (!members) return;
    for (size_t i = 0; i < members->size(); ++i) {
      const std::string& member = (*members)[i];
      if (!IsMember(member)) {
        section->Complain(key + "[" + std::to_string(i) + "]",
                          "allowed are user:EMAIL, serviceAccount:EMAIL, group:EMAIL, "
                          "domain:NAME, projectOwner:ID, projectEditor:ID, projectViewer:ID, "
                          "principal://..., principalSet://..., allUsers and "
                          "allAuthenticatedUsers");
      } else if (member.starts_with("all")) {
        desired_.warnings.push_back(section->PathOf(key) + ": " + member +
                                    " grants this to everyone on the internet");
      }
      AddGrant({resource, role, member});
    }
  }

  void AddGrant(Grant grant) {
    auto& grants = desired_.grants;
    if (std::find(grants.begin(), grants.end(), grant) == grants.end()) {
      grants.push_back(std::move(grant));
    }
  }

  void AddTopic(const Json& json, const std::string& path) {
    Section section(json, path, problems_);
    Wanted<pb::Topic> wanted;
    std::string name;
    if (TakeName(&section, "topics", &name)) {
      WarnOfName(section, pubsub::CheckTopicConvention(name), pubsub::BetterTopicId(name));
    }
    wanted.resource.set_name(name);
    const auto retention = section.Duration("retention", pubsub::kMinRetentionSeconds,
                                            pubsub::kMaxRetentionSeconds, kNone);
    if (retention) wanted.fields.emplace_back("message_retention_duration");
    if (retention.value_or(-1) > 0) {
      wanted.resource.mutable_message_retention_duration()->set_seconds(*retention);
    }
    TakeLabels(&section, &wanted);
    if (const auto key = section.Text("kms_key")) {
      wanted.fields.emplace_back("kms_key_name");
      wanted.resource.set_kms_key_name(*key);
      if (!IsKeyName(*key)) {
        section.Complain("kms_key", "allowed is projects/P/locations/L/keyRings/R/cryptoKeys/K");
      }
    }
    TakeRegions(&section, &wanted);
    TakeSchema(&section, path, &wanted);
    TakeMembers(&section, "publishers", name, kPublisherRole);
    section.End();
    desired_.topics.push_back(std::move(wanted));
  }

  static void TakeRegions(Section* section, Wanted<pb::Topic>* wanted) {
    const auto regions = section->Texts("storage_regions");
    const auto enforce = section->Truth("enforce_in_transit");
    if (regions) wanted->fields.emplace_back("message_storage_policy");
    auto* const policy =
        regions && !regions->empty() ? wanted->resource.mutable_message_storage_policy() : nullptr;
    if (enforce && policy == nullptr) {
      section->Complain("enforce_in_transit", "it needs storage_regions");
    }
    if (policy == nullptr) return;
    policy->set_enforce_in_transit(enforce.value_or(false));
    for (const std::string& region : *regions) {
      if (region.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") != std::string::npos) {
        section->Complain("storage_regions", pubsub::Shown(region, 80) +
                                                 " is not the name of a region, like europe-west1");
      }
      policy->add_allowed_persistence_regions(region);
    }
  }

  void TakeSchema(Section* section, const std::string& path, Wanted<pb::Topic>* wanted) {
    const Json* const value = section->Value("schema");
    if (value == nullptr) return;
    wanted->fields.emplace_back("schema_settings");
    if (value->is_string() && value->get<std::string>() == kNone) return;
    Section schema(*value, path + ".schema", problems_);
    auto* const settings = wanted->resource.mutable_schema_settings();
    const std::string name = schema.RequiredText("name");
    const std::string problem = name.empty() ? "" : pubsub::CheckSchemaName(name);
    if (!problem.empty()) schema.Complain("name", problem);
    settings->set_schema(pubsub::SchemaName(desired_.project, name));
    schema.Require("encoding");
    const auto encoding = schema.OneOf("encoding", {"json", "binary"});
    settings->set_encoding(encoding == "binary" ? pb::BINARY : pb::JSON);
    for (const char* key : {"first_revision", "last_revision"}) {
      const std::string revision = schema.Text(key).value_or("");
      const bool first = std::string_view(key) == "first_revision";
      if (revision.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) {
        schema.Complain(key, "allowed is the id of a revision, hexadecimal digits");
      }
      (first ? settings->mutable_first_revision_id() : settings->mutable_last_revision_id())
          ->assign(revision);
    }
    schema.End();
  }

  void AddSubscription(const Json& json, const std::string& path) {
    Section section(json, path, problems_);
    Wanted<pb::Subscription> wanted = Defaults();
    pb::Subscription& subscription = wanted.resource;
    std::string name;
    const bool named = TakeName(&section, "subscriptions", &name);
    const std::string topic = section.RequiredText("topic");
    if (!topic.empty()) subscription.set_topic(TopicReference(&section, "topic", topic));
    subscription.set_name(name);
    if (named && !subscription.topic().empty()) {
      WarnOfName(section, pubsub::CheckSubscriptionConvention(name),
                 pubsub::BetterSubscriptionId(name, subscription.topic()));
    }
    subscription.set_enable_message_ordering(section.Truth("ordering").value_or(true));
    subscription.set_enable_exactly_once_delivery(section.Truth("exactly_once").value_or(true));
    subscription.set_retain_acked_messages(section.Truth("retain_acked").value_or(true));
    subscription.set_filter(section.TextOfLines("filter").value_or(""));
    if (subscription.filter().size() > pubsub::kMaxFilterBytes) {
      section.Complain("filter",
                       "Pub/Sub allows " + std::to_string(pubsub::kMaxFilterBytes) + " bytes");
    }
    if (const auto seconds = section.Duration("ack_deadline", pubsub::kMinAckDeadlineSeconds,
                                              pubsub::kMaxAckDeadlineSeconds)) {
      subscription.set_ack_deadline_seconds(static_cast<int>(*seconds));
    }
    TakeTimes(&section, path, &subscription);
    TakeLabels(&section, &wanted);
    TakeDeadLetters(&section, path);
    TakeMembers(&section, "subscribers", name, kSubscriberRole);
    section.End();
    desired_.subscriptions.push_back(std::move(wanted));
  }

  // A subscription as it is without a word about it.
  static Wanted<pb::Subscription> Defaults() {
    Wanted<pb::Subscription> wanted;
    wanted.fields = {"ack_deadline_seconds",        "retain_acked_messages",
                     "message_retention_duration",  "expiration_policy",
                     "dead_letter_policy",          "retry_policy",
                     "enable_exactly_once_delivery"};
    pb::Subscription& subscription = wanted.resource;
    subscription.set_enable_message_ordering(true);
    subscription.set_enable_exactly_once_delivery(true);
    subscription.set_retain_acked_messages(true);
    subscription.set_ack_deadline_seconds(static_cast<int>(kDefaultAckDeadline));
    subscription.mutable_message_retention_duration()->set_seconds(
        pubsub::kDefaultRetentionSeconds);
    subscription.mutable_retry_policy()->mutable_minimum_backoff()->set_seconds(
        pubsub::kDefaultMinRetryBackoffSeconds);
    subscription.mutable_retry_policy()->mutable_maximum_backoff()->set_seconds(
        pubsub::kDefaultMaxRetryBackoffSeconds);
    subscription.mutable_expiration_policy();  // without a time it never expires
    return wanted;
  }

  void TakeTimes(Section* section, const std::string& path, pb::Subscription* subscription) {
    auto* const retention = subscription->mutable_message_retention_duration();
    if (const auto seconds = section->Duration("retention", pubsub::kMinRetentionSeconds,
                                               pubsub::kMaxRetentionSeconds)) {
      retention->set_seconds(*seconds);
    }
    const auto expiration =
        section->Duration("expiration", pubsub::kMinExpirationSeconds, kMostExpiration, "never");
    if (expiration.value_or(-1) > 0) {
      subscription->mutable_expiration_policy()->mutable_ttl()->set_seconds(*expiration);
      if (*expiration < retention->seconds()) {
        section->Complain("expiration", "it may not be shorter than retention, which is " +
                                            DurationText(retention->seconds()));
      }
    }
    const Json* const retry = section->Value("retry");
    if (retry == nullptr) return;
    if (retry->is_string() && retry->get<std::string>() == kNone) {
      return subscription->clear_retry_policy();
    }
    Section times(*retry, path + ".retry", problems_);
    auto* const policy = subscription->mutable_retry_policy();
    const auto least = times.Duration("minimum", 0, pubsub::kMaxRetryBackoffSeconds);
    const auto most = times.Duration("maximum", 0, pubsub::kMaxRetryBackoffSeconds);
    if (least) policy->mutable_minimum_backoff()->set_seconds(*least);
    if (most) policy->mutable_maximum_backoff()->set_seconds(*most);
    if (policy->minimum_backoff().seconds() > policy->maximum_backoff().seconds()) {
      times.Complain("minimum", "it may not be longer than maximum, which is " +
                                    DurationText(policy->maximum_backoff().seconds()));
    }
    times.End();
  }

  void TakeDeadLetters(Section* section, const std::string& path) {
    DeadLetters& letters = dead_letters_.emplace_back();
    const Json* const value = section->Value("dead_letter");
    if (value == nullptr) return;
    letters.given = true;
    letters.none = value->is_string() && value->get<std::string>() == kNone;
    if (letters.none) return;
    Section given(*value, path + ".dead_letter", problems_);
    if (const auto topic = given.Text("topic")) {
      letters.topic = TopicReference(&given, "topic", *topic);
    }
    letters.attempts =
        given.Whole("max_attempts", pubsub::kMinDeliveryAttempts, pubsub::kMaxDeliveryAttempts)
            .value_or(letters.attempts);
    if (const auto name = given.Text("subscription")) {
      const std::string problem = *name == kNone ? "" : pubsub::CheckSubscriptionName(*name);
      if (!problem.empty()) given.Complain("subscription", problem);
      letters.subscription =
          *name == kNone ? "" : pubsub::SubscriptionName(desired_.project, *name);
    }
    given.End();
  }

  bool InProject(const std::string& name) const {
    return name.starts_with("projects/" + desired_.project + "/");
  }

  // The policy of a subscription, and what it implies: the dead-letter topic, its own subscription
  // and the rights of the service.
  void AddDeadLetters(size_t index) {
    DeadLetters& letters = dead_letters_[index];
    const std::string of = desired_.subscriptions[index].resource.topic();
    const bool of_dead_letters = of.ends_with(kDlq) || dead_letter_topics_.contains(of);
    if (of.empty() || letters.none || (!letters.given && of_dead_letters)) return;
    if (letters.topic.empty()) letters.topic = of + kDlq;
    const std::string path = "subscriptions[" + std::to_string(index) + "].dead_letter";
    if (letters.topic == of) {
      problems_->Add(path + ".topic", "it may not be the topic of the subscription itself");
      return;
    }
    pb::Subscription& subscription = desired_.subscriptions[index].resource;
    auto* const policy = subscription.mutable_dead_letter_policy();
    policy->set_dead_letter_topic(letters.topic);
    policy->set_max_delivery_attempts(static_cast<int>(letters.attempts));
    const std::string name = subscription.name();
    ImplyDeadLetterResources(letters, path + ".subscription");
    if (number_.empty()) {
      lacks_number_ = true;
    } else if (InProject(name)) {
      const std::string agent =
          "serviceAccount:service-" + number_ + "@gcp-sa-pubsub.iam.gserviceaccount.com";
      AddGrant({letters.topic, kPublisherRole, agent});
      AddGrant({name, kSubscriberRole, agent});
    }
  }

  void ImplyDeadLetterResources(const DeadLetters& letters, const std::string& path) {
    // A topic of another project is that project's business.
    if (!InProject(letters.topic)) return;
    if (names_.insert(letters.topic).second) {
      desired_.topics.emplace_back().resource.set_name(letters.topic);
    }
    if (letters.subscription == "") return;
    const bool has_one =
        std::any_of(desired_.subscriptions.begin(), desired_.subscriptions.end(),
                    [&](const auto& one) { return one.resource.topic() == letters.topic; });
    if (!letters.subscription && has_one) return;
    const std::string name = letters.subscription.value_or(pubsub::SubscriptionName(
        desired_.project, letters.topic.substr(letters.topic.rfind('/') + 1) + "-monitor"));
    if (!names_.insert(name).second) {
      for (const auto& one : desired_.subscriptions) {
        if (one.resource.name() != name || one.resource.topic() == letters.topic) continue;
        problems_->Add(path, name + " is a subscription of " + one.resource.topic());
      }
      return;
    }
    Wanted<pb::Subscription> own = Defaults();
    own.resource.set_name(name);
    own.resource.set_topic(letters.topic);
    desired_.subscriptions.push_back(std::move(own));
  }

  const std::string directory_;
  Problems* const problems_;
  Desired desired_;
  std::string number_;
  bool lacks_number_ = false;
  std::set<std::string> names_;            // of everything in desired_
  std::vector<DeadLetters> dead_letters_;  // of the subscriptions of the file, in their order
  std::set<std::string> dead_letter_topics_;
};

}  // namespace

std::string ProjectOf(const Json& document) {
  if (!document.is_object()) return "";
  const auto found = document.find("project");
  return found != document.end() && found->is_string() ? found->get<std::string>() : "";
}

Desired ReadDesired(const Json& document, const std::string& project, const std::string& directory,
                    Problems* problems) {
  const std::string problem = pubsub::CheckProjectId(project);
  if (!problem.empty()) problems->Add("project", problem);
  return Builder(project, directory, problems).Build(document);
}

}  // namespace postbox::cli
