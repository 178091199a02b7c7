#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "worker/cli/provision/fields.h"
#include "worker/cli/provision/print.h"

namespace postbox::cli {
namespace {

// A block of HCL in the form that `terraform fmt` gives it: the equals signs stand below each
// other, and an empty line comes before an inner block.
class Block {
 public:
  explicit Block(std::string head) : head_(std::move(head)) {}

  void Set(const std::string& name, const std::string& expression) {
    arguments_.emplace_back(name, expression);
  }
  void SetText(const std::string& name, const std::string& text) { Set(name, HclQuoted(text)); }
  void SetBool(const std::string& name, bool value) { Set(name, value ? "true" : "false"); }
  void Add(Block block) { blocks_.push_back(std::move(block)); }

  std::string Text(const std::string& indent = "") const {
    size_t width = 0;
    for (const auto& [name, expression] : arguments_) width = std::max(width, name.size());
    std::string text = indent + head_ + " {\n";
    for (const auto& [name, expression] : arguments_) {
      text +=
          indent + "  " + name + std::string(width - name.size(), ' ') + " = " + expression + "\n";
    }
    bool first = arguments_.empty();
    for (const Block& block : blocks_) {
      text += (std::exchange(first, false) ? "" : "\n") + block.Text(indent + "  ");
    }
    return text + indent + "}\n";
  }

 private:
  const std::string head_;
  std::vector<std::pair<std::string, std::string>> arguments_;
  std::vector<Block> blocks_;
};

template <class Map>
std::string Labels(const Map& labels) {
  const std::map<std::string, std::string> sorted(labels.begin(), labels.end());
  std::string text;
  for (const auto& [key, value] : sorted) {
    text += (text.empty() ? "" : ", ") + HclQuoted(key) + " = " + HclQuoted(value);
  }
  return "{ " + text + " }";
}

class Writer {
 public:
  explicit Writer(const Desired& desired) : desired_(desired) {
    for (const pb::Schema& one : desired.schemas) Name("google_pubsub_schema", one.name());
    for (const auto& one : desired.topics) Name("google_pubsub_topic", one.resource.name());
    for (const auto& one : desired.subscriptions) {
      Name("google_pubsub_subscription", one.resource.name());
    }
  }

  std::string Write() {
    for (const pb::Schema& schema : desired_.schemas) WriteSchema(schema);
    for (const auto& topic : desired_.topics) WriteTopic(topic.resource);
    for (const auto& subscription : desired_.subscriptions) {
      WriteSubscription(subscription.resource);
    }
    for (const Grant& grant : desired_.grants) WriteGrant(grant);
    return text_;
  }

 private:
  // A name of a resource has letters, digits, _ and -, and is there once for each type.
  std::string Label(const std::string& type, const std::string& wish) {
    std::string label;
    for (const char c : wish) {
      const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                        (c >= '0' && c <= '9') || c == '-' || c == '_';
      label += good ? c : '_';
    }
    std::string unique = label;
    for (int n = 2; !labels_.insert(type + "." + unique).second; ++n) {
      unique = label + "_" + std::to_string(n);
    }
    return unique;
  }

  void Name(const std::string& type, const std::string& name) {
    addresses_[name] = type + "." + Label(type, IdOf(name));
  }

  // The resource of the same file, or the name of one that is not in it.
  std::string Reference(const std::string& name, const std::string& attribute) const {
    const auto found = addresses_.find(name);
    if (found != addresses_.end()) return found->second + "." + attribute;
    return HclQuoted(attribute == "name" ? IdOf(name) : name);
  }

  static std::string Head(const std::string& address) {
    const size_t dot = address.find('.');
    return "resource \"" + address.substr(0, dot) + "\" \"" + address.substr(dot + 1) + "\"";
  }

  Block Begin(const std::string& name) const {
    Block block(Head(addresses_.at(name)));
    block.SetText("project", ProjectOfName(name));
    block.SetText("name", IdOf(name));
    return block;
  }

  void Put(const Block& block) { text_ += (text_.empty() ? "" : "\n") + block.Text(); }

  void WriteSchema(const pb::Schema& schema) {
    Block block = Begin(schema.name());
    block.SetText("type", schema.type() == pb::Schema::AVRO ? "AVRO" : "PROTOCOL_BUFFER");
    block.SetText("definition", schema.definition());
    Put(block);
  }

  void WriteTopic(const pb::Topic& topic) {
    Block block = Begin(topic.name());
    if (topic.has_message_retention_duration()) {
      block.SetText("message_retention_duration", Seconds(topic.message_retention_duration()));
    }
    if (!topic.labels().empty()) block.Set("labels", Labels(topic.labels()));
    if (!topic.kms_key_name().empty()) block.SetText("kms_key_name", topic.kms_key_name());
    const auto& policy = topic.message_storage_policy();
    if (!policy.allowed_persistence_regions().empty()) {
      Block inner("message_storage_policy");
      std::string regions;
      for (const std::string& region : policy.allowed_persistence_regions()) {
        regions += (regions.empty() ? "" : ", ") + HclQuoted(region);
      }
      inner.Set("allowed_persistence_regions", "[" + regions + "]");
      if (policy.enforce_in_transit()) inner.SetBool("enforce_in_transit", true);
      block.Add(std::move(inner));
    }
    const auto& settings = topic.schema_settings();
    if (!settings.schema().empty()) {
      Block inner("schema_settings");
      inner.Set("schema", Reference(settings.schema(), "id"));
      inner.SetText("encoding", settings.encoding() == pb::BINARY ? "BINARY" : "JSON");
      if (!settings.first_revision_id().empty()) {
        inner.SetText("first_revision_id", settings.first_revision_id());
      }
      if (!settings.last_revision_id().empty()) {
        inner.SetText("last_revision_id", settings.last_revision_id());
      }
      block.Add(std::move(inner));
    }
    Put(block);
  }

  void WriteSubscription(const pb::Subscription& subscription) {
    Block block = Begin(subscription.name());
    block.Set("topic", Reference(subscription.topic(), "id"));
    block.SetBool("enable_message_ordering", subscription.enable_message_ordering());
    block.SetBool("enable_exactly_once_delivery", subscription.enable_exactly_once_delivery());
    if (!subscription.filter().empty()) block.SetText("filter", subscription.filter());
    block.Set("ack_deadline_seconds", std::to_string(subscription.ack_deadline_seconds()));
    block.SetText("message_retention_duration", Seconds(subscription.message_retention_duration()));
    block.SetBool("retain_acked_messages", subscription.retain_acked_messages());
    if (!subscription.labels().empty()) block.Set("labels", Labels(subscription.labels()));
    Block expiration("expiration_policy");  // "" is never
    expiration.SetText("ttl", subscription.expiration_policy().has_ttl()
                                  ? Seconds(subscription.expiration_policy().ttl())
                                  : "");
    block.Add(std::move(expiration));
    if (subscription.has_retry_policy()) {
      Block retry("retry_policy");
      retry.SetText("minimum_backoff", Seconds(subscription.retry_policy().minimum_backoff()));
      retry.SetText("maximum_backoff", Seconds(subscription.retry_policy().maximum_backoff()));
      block.Add(std::move(retry));
    }
    if (subscription.has_dead_letter_policy()) {
      const auto& policy = subscription.dead_letter_policy();
      Block letters("dead_letter_policy");
      letters.Set("dead_letter_topic", Reference(policy.dead_letter_topic(), "id"));
      letters.Set("max_delivery_attempts", std::to_string(policy.max_delivery_attempts()));
      block.Add(std::move(letters));
    }
    Put(block);
  }

  void WriteGrant(const Grant& grant) {
    const bool on_topic = grant.resource.find("/topics/") != std::string::npos;
    const std::string kind = on_topic ? "topic" : "subscription";
    const std::string type = "google_pubsub_" + kind + "_iam_member";
    const std::string label = Label(type, IdOf(grant.resource) + "_" + IdOf(grant.role));
    Block block(Head(type + "." + label));
    block.SetText("project", ProjectOfName(grant.resource));
    block.Set(kind, Reference(grant.resource, "name"));
    block.SetText("role", grant.role);
    block.SetText("member", grant.member);
    Put(block);
  }

  const Desired& desired_;
  std::map<std::string, std::string> addresses_;  // TYPE.LABEL by full name
  std::set<std::string> labels_;
  std::string text_;
};

}  // namespace

std::string HclQuoted(const std::string& text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string quoted = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto byte = static_cast<unsigned char>(c);
    const bool opens = (c == '$' || c == '%') && i + 1 < text.size() && text[i + 1] == '{';
    if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\r') {
      quoted += "\\r";
    } else if (c == '\t') {
      quoted += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      quoted += std::string("\\u00") + kHex[byte >> 4] + kHex[byte & 15];
    } else {
      if (c == '"' || c == '\\') quoted += '\\';
      if (opens) quoted += c;  // written twice it begins no template
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string PrintTerraform(const Desired& desired) { return Writer(desired).Write(); }

}  // namespace postbox::cli
