#include "worker/cli/provision/plan.h"

#include <algorithm>
#include <string_view>

#include "worker/cli/provision/fields.h"

namespace postbox::cli {
namespace {

bool Holds(const iam::Policy& policy, const Grant& grant) {
  return std::any_of(
      policy.bindings().begin(), policy.bindings().end(), [&](const iam::Binding& binding) {
        return binding.role() == grant.role && !binding.has_condition() &&
               std::find(binding.members().begin(), binding.members().end(), grant.member) !=
                   binding.members().end();
      });
}

class Planner {
 public:
  Planner(const Desired& desired, const Actual& actual) : desired_(desired), actual_(actual) {}

  Plan Make() {
    for (const pb::Schema& schema : desired_.schemas) PlanSchema(schema);
    for (const auto& topic : desired_.topics) PlanTopic(topic);
    PlanGrants("/topics/");
    for (const auto& subscription : desired_.subscriptions) PlanSubscription(subscription);
    PlanGrants("/subscriptions/");
    return std::move(plan_);
  }

 private:
  void Refuse(const std::string& name, const std::string& reason, const std::string& remedy) {
    plan_.refusals.push_back({name, reason, remedy});
  }

  void PlanSchema(const pb::Schema& schema) {
    if (actual_.no_schemas) {
      plan_.unsupported.push_back({schema.name(), "the server has no schemas (UNIMPLEMENTED)", ""});
      return;
    }
    const auto found = actual_.schemas.find(schema.name());
    if (found == actual_.schemas.end()) {
      plan_.steps.push_back({Step::kCreate,
                             "schema",
                             schema.name(),
                             {{"type", "", TypeName(schema.type())}},
                             schema,
                             {}});
      return;
    }
    if (found->second.type() != schema.type()) {
      Refuse(schema.name(),
             std::string("the type of a schema cannot be changed: it is ") +
                 TypeName(found->second.type()) + ", and the file says " + TypeName(schema.type()),
             "give the schema of the other type another name, and use that name in the topic");
      return;
    }
    if (SameDefinition(schema, found->second)) return;
    plan_.steps.push_back(
        {Step::kUpdate,
         "schema",
         schema.name(),
         {{"definition", "revision " + found->second.revision_id(), "a new revision"}},
         schema,
         {}});
  }

  template <class Resource>
  static bool Contains(const std::vector<Wanted<Resource>>& wanted, const std::string& name) {
    return std::any_of(wanted.begin(), wanted.end(),
                       [&](const auto& one) { return one.resource.name() == name; });
  }

  // Refuses a resource that refers to a topic that will not be there.
  void NeedTopic(const std::string& name, const std::string& key, const std::string& topic) {
    if (topic.empty() || Contains(desired_.topics, topic) || actual_.topics.contains(topic)) return;
    Refuse(name, key + " is " + topic + ", which is neither in the file nor on the server",
           "add the topic to the file, or correct its name");
  }

  void PlanTopic(const Wanted<pb::Topic>& wanted) {
    const std::string& schema = wanted.resource.schema_settings().schema();
    const bool known = std::any_of(desired_.schemas.begin(), desired_.schemas.end(),
                                   [&](const pb::Schema& one) { return one.name() == schema; });
    if (!schema.empty() && !actual_.no_schemas && !known && !actual_.schemas.contains(schema)) {
      Refuse(wanted.resource.name(),
             "schema is " + schema + ", which is neither in the file nor on the server",
             "add the schema to the file, or correct its name");
    }
    Wanted<pb::Topic> topic = wanted;
    if (!schema.empty() && actual_.no_schemas) {
      topic.resource.clear_schema_settings();
      std::erase(topic.fields, "schema_settings");
      plan_.unsupported.push_back(
          {topic.resource.name(), "schema: the server has no schemas (UNIMPLEMENTED)", ""});
    }
    PlanResource("topic", topic, actual_.topics);
  }

  void PlanSubscription(const Wanted<pb::Subscription>& wanted) {
    const pb::Subscription& subscription = wanted.resource;
    NeedTopic(subscription.name(), "topic", subscription.topic());
    NeedTopic(subscription.name(), "dead_letter.topic",
              subscription.dead_letter_policy().dead_letter_topic());
    const auto found = actual_.subscriptions.find(subscription.name());
    if (found != actual_.subscriptions.end()) CheckPulled(found->second);
    PlanResource("subscription", wanted, actual_.subscriptions);
  }

  // What is made to be pushed or is detached cannot be pulled, whatever its other fields say.
  void CheckPulled(const pb::Subscription& subscription) {
    if (subscription.detached()) {
      Refuse(subscription.name(), "it is detached from its topic, which cannot be undone",
             Replacement(subscription));
    }
    if (!subscription.push_config().push_endpoint().empty()) {
      Refuse(subscription.name(),
             "it pushes to " + WithoutQuery(subscription.push_config().push_endpoint()) +
                 ", and only subscriptions that are pulled are provisioned",
             "gcloud pubsub subscriptions modify-push-config " + IdOf(subscription.name()) +
                 " --project=" + ProjectOfName(subscription.name()) + " --push-endpoint=''");
    }
  }

  // The query of a push endpoint often has a secret, which is not for all who read differences.
  static std::string WithoutQuery(const std::string& url) {
    return url.substr(0, url.find_first_of("?#"));
  }

  static std::string Replacement(const pb::Subscription& subscription) {
    return "give the subscription in the file another name, let its consumers use that one "
           "(postbox.create_subscription), and delete the old one when it is drained; or delete " +
           IdOf(subscription.name()) +
           " yourself, which loses what it has not delivered, and run the command again";
  }
  static std::string Replacement(const pb::Topic& topic) {
    return "give the topic in the file another name instead of " + IdOf(topic.name());
  }

  template <class Resource>
  void PlanResource(const char* what, const Wanted<Resource>& wanted,
                    const std::map<std::string, Resource>& there) {
    const Resource& resource = wanted.resource;
    const auto found = there.find(resource.name());
    const bool fresh = found == there.end();
    Step step{fresh ? Step::kCreate : Step::kUpdate, what, resource.name(), {}, resource, {}};
    for (const ResourceField<Resource>& field : FieldsOf(resource)) {
      const bool decided =
          std::find(wanted.fields.begin(), wanted.fields.end(), field.path) != wanted.fields.end();
      if (!decided && field.changeable) continue;
      const std::string to = field.show(resource);
      const std::string from = fresh ? "" : field.show(found->second);
      if (from == to) continue;
      if (!fresh && !field.changeable) {
        Refuse(resource.name(),
               std::string(field.key) + " cannot be changed: it is " + from +
                   ", and the file says " + to,
               Replacement(resource));
        continue;
      }
      step.changes.push_back({field.key, from, to});
      if (!fresh) step.mask.emplace_back(field.path);
    }
    if (fresh || !step.changes.empty()) plan_.steps.push_back(std::move(step));
  }

  // Of the resources of this collection, each one at a time.
  void PlanGrants(std::string_view collection) {
    std::vector<Grants> all;
    for (const Grant& grant : desired_.grants) {
      if (grant.resource.find(collection) == std::string::npos) continue;
      if (actual_.no_policies) {
        plan_.unsupported.push_back({grant.resource,
                                     "the server has no IAM policies (UNIMPLEMENTED), so " +
                                         grant.role + " cannot be granted to " + grant.member,
                                     ""});
        continue;
      }
      const auto policy = actual_.policies.find(grant.resource);
      if (policy != actual_.policies.end() && Holds(policy->second, grant)) continue;
      auto place = std::find_if(all.begin(), all.end(),
                                [&](const Grants& one) { return one.resource == grant.resource; });
      if (place == all.end()) place = all.insert(all.end(), Grants{grant.resource, {}});
      place->grants.push_back(grant);
    }
    for (Grants& one : all) {
      Step step{Step::kUpdate, "rights on", one.resource, {}, {}, {}};
      for (const Grant& grant : one.grants) step.changes.push_back({grant.role, "", grant.member});
      step.wanted = std::move(one);
      plan_.steps.push_back(std::move(step));
    }
  }

  const Desired& desired_;
  const Actual& actual_;
  Plan plan_;
};

}  // namespace

std::string StepText(const Step& step) {
  std::string text =
      (step.kind == Step::kCreate ? "+ " : "~ ") + step.what + " " + step.name + "\n";
  for (const Change& change : step.changes) {
    text += "    " + change.key + ": " + (change.from.empty() ? "" : change.from + " -> ") +
            change.to + "\n";
  }
  return text;
}

Plan MakePlan(const Desired& desired, const Actual& actual) {
  return Planner(desired, actual).Make();
}

}  // namespace postbox::cli
