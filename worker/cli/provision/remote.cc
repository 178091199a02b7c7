#include "worker/cli/provision/remote.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "worker/cli/provision/fields.h"

namespace postbox::cli {
namespace {

constexpr int kPolicyVersion = 3;  // the one that has conditions

// Whether a message of the server names this field, as protobuf or as JSON writes it.
bool Names(const std::string& message, std::string_view path) {
  std::string camel;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '_' && i + 1 < path.size()) {
      camel += static_cast<char>(path[++i] - 'a' + 'A');
    } else {
      camel += path[i];
    }
  }
  return message.find(path) != std::string::npos || message.find(camel) != std::string::npos;
}

// Puts the answers to `names` into `found`. What is not there is left out.
template <class Resource, class Get>
CallResult ReadAll(const std::set<std::string>& names, Get get,
                   std::map<std::string, Resource>* found) {
  for (const std::string& name : names) {
    Resource resource;
    grpc::Status status = get(name, &resource);
    if (status.error_code() == grpc::StatusCode::NOT_FOUND) continue;
    if (!status.ok()) return {std::move(status), name};
    found->emplace(name, std::move(resource));
  }
  return {};
}

}  // namespace

grpc::Status Remote::GetSchema(const std::string& name, pb::Schema* schema) {
  grpc::ClientContext context;
  admin_->Prepare(&context, "name", name);
  pb::GetSchemaRequest request;
  request.set_name(name);
  request.set_view(pb::FULL);
  return admin_->schemas()->GetSchema(&context, request, schema);
}

grpc::Status Remote::GetPolicy(const std::string& resource, iam::Policy* policy) {
  grpc::ClientContext context;
  admin_->Prepare(&context, "resource", resource);
  iam::GetIamPolicyRequest request;
  request.set_resource(resource);
  request.mutable_options()->set_requested_policy_version(kPolicyVersion);
  return admin_->policies()->GetIamPolicy(&context, request, policy);
}

CallResult Remote::Read(const Desired& desired, Actual* actual) {
  std::set<std::string> schemas;
  std::set<std::string> topics;
  std::set<std::string> subscriptions;
  for (const pb::Schema& schema : desired.schemas) schemas.insert(schema.name());
  for (const auto& [topic, fields] : desired.topics) {
    topics.insert(topic.name());
    if (topic.has_schema_settings()) schemas.insert(topic.schema_settings().schema());
  }
  for (const auto& [subscription, fields] : desired.subscriptions) {
    subscriptions.insert(subscription.name());
    topics.insert(subscription.topic());
    if (subscription.has_dead_letter_policy()) {
      topics.insert(subscription.dead_letter_policy().dead_letter_topic());
    }
  }
  CallResult result = ReadAll(
      topics, [&](const auto& name, auto* topic) { return admin_->GetTopic(name, topic); },
      &actual->topics);
  if (!result.ok()) return result;
  result = ReadAll(
      subscriptions,
      [&](const auto& name, auto* subscription) {
        return admin_->GetSubscription(name, subscription);
      },
      &actual->subscriptions);
  if (!result.ok()) return result;
  result = ReadAll(
      schemas, [&](const auto& name, auto* schema) { return GetSchema(name, schema); },
      &actual->schemas);
  actual->no_schemas = result.status.error_code() == grpc::StatusCode::UNIMPLEMENTED;
  if (!result.ok() && !actual->no_schemas) return result;
  return ReadPolicies(desired, actual);
}

CallResult Remote::ReadPolicies(const Desired& desired, Actual* actual) {
  std::set<std::string> resources;
  for (const Grant& grant : desired.grants) resources.insert(grant.resource);
  // Resources that are not there yet are asked about, too: that tells whether there are policies at
  // all before anything is changed.
  CallResult result = ReadAll(
      resources, [&](const auto& name, auto* policy) { return GetPolicy(name, policy); },
      &actual->policies);
  actual->no_policies = result.status.error_code() == grpc::StatusCode::UNIMPLEMENTED;
  return actual->no_policies ? CallResult{} : result;
}

CallResult Remote::Validate(const Desired& desired, const Plan& plan) {
  for (const Step& step : plan.steps) {
    const auto* const schema = std::get_if<pb::Schema>(&step.wanted);
    if (schema == nullptr) continue;
    pb::ValidateSchemaRequest request;
    request.set_parent("projects/" + desired.project);
    *request.mutable_schema() = *schema;
    grpc::ClientContext context;
    admin_->Prepare(&context, "parent", request.parent());
    pb::ValidateSchemaResponse response;
    grpc::Status status = admin_->schemas()->ValidateSchema(&context, request, &response);
    if (status.ok() || status.error_code() == grpc::StatusCode::UNIMPLEMENTED) continue;
    return {std::move(status), schema->name()};
  }
  return {};
}

CallResult Remote::Apply(const Step& step, bool skip_unsupported, LeftOut* left_out) {
  grpc::Status status;
  if (const auto* const schema = std::get_if<pb::Schema>(&step.wanted)) {
    status = ApplySchema(step, *schema);
  } else if (const auto* const topic = std::get_if<pb::Topic>(&step.wanted)) {
    status = ApplyResource(step, *topic, skip_unsupported, left_out);
  } else if (const auto* const subscription = std::get_if<pb::Subscription>(&step.wanted)) {
    status = ApplyResource(step, *subscription, skip_unsupported, left_out);
  } else {
    status = ApplyGrants(std::get<Grants>(step.wanted));
  }
  return {std::move(status), step.name};
}

grpc::Status Remote::ApplySchema(const Step& step, const pb::Schema& schema) {
  grpc::ClientContext context;
  pb::Schema answer;
  if (step.kind == Step::kUpdate) {
    admin_->Prepare(&context, "name", schema.name());
    pb::CommitSchemaRequest request;
    request.set_name(schema.name());
    *request.mutable_schema() = schema;
    return admin_->schemas()->CommitSchema(&context, request, &answer);
  }
  pb::CreateSchemaRequest request;
  request.set_parent("projects/" + ProjectOfName(schema.name()));
  request.set_schema_id(IdOf(schema.name()));
  *request.mutable_schema() = schema;
  admin_->Prepare(&context, "parent", request.parent());
  return admin_->schemas()->CreateSchema(&context, request, &answer);
}

grpc::Status Remote::Send(const Step& step, const pb::Topic& topic,
                          const std::vector<std::string>& mask, pb::Topic* answer) {
  grpc::ClientContext context;
  if (step.kind == Step::kCreate) {
    admin_->Prepare(&context, "name", topic.name());
    return admin_->publisher()->CreateTopic(&context, topic, answer);
  }
  admin_->Prepare(&context, "topic.name", topic.name());
  pb::UpdateTopicRequest request;
  *request.mutable_topic() = topic;
  for (const std::string& path : mask) request.mutable_update_mask()->add_paths(path);
  return admin_->publisher()->UpdateTopic(&context, request, answer);
}

grpc::Status Remote::Send(const Step& step, const pb::Subscription& subscription,
                          const std::vector<std::string>& mask, pb::Subscription* answer) {
  grpc::ClientContext context;
  if (step.kind == Step::kCreate) {
    admin_->Prepare(&context, "name", subscription.name());
    return admin_->subscriber()->CreateSubscription(&context, subscription, answer);
  }
  admin_->Prepare(&context, "subscription.name", subscription.name());
  pb::UpdateSubscriptionRequest request;
  *request.mutable_subscription() = subscription;
  for (const std::string& path : mask) request.mutable_update_mask()->add_paths(path);
  return admin_->subscriber()->UpdateSubscription(&context, request, answer);
}

template <class Resource>
grpc::Status Remote::ApplyResource(const Step& step, Resource wanted, bool skip_unsupported,
                                   LeftOut* left_out) {
  std::vector<std::string> mask = step.mask;
  std::set<std::string_view> gone;  // keys that were left out
  Resource answer;
  while (true) {
    const grpc::Status status = Send(step, wanted, mask, &answer);
    if (status.ok()) break;
    if (status.error_code() != grpc::StatusCode::UNIMPLEMENTED || !skip_unsupported) return status;
    const auto fields = FieldsOf(wanted);
    const auto named = std::find_if(fields.begin(), fields.end(), [&](const auto& field) {
      const bool sent = std::any_of(step.changes.begin(), step.changes.end(),
                                    [&](const Change& one) { return one.key == field.key; });
      return sent && field.changeable && !gone.contains(field.key) &&
             Names(status.error_message(), field.path);
    });
    if (named == fields.end()) return status;
    gone.insert(named->key);
    left_out->push_back({step.name, std::string(named->key) + ": " + StatusText(status), ""});
    wanted.GetReflection()->ClearField(&wanted,
                                       wanted.GetDescriptor()->FindFieldByName(named->path));
    std::erase(mask, named->path);
    if (step.kind == Step::kUpdate && mask.empty()) return grpc::Status::OK;
  }
  for (const auto& field : FieldsOf(wanted)) {
    const bool asked = std::any_of(step.changes.begin(), step.changes.end(),
                                   [&](const Change& one) { return one.key == field.key; });
    const std::string shown = field.show(answer);
    if (!asked || gone.contains(field.key) || shown == field.show(wanted)) continue;
    left_out->push_back({step.name,
                         std::string(field.key) + ": the server accepted " + field.show(wanted) +
                             " without an error, but shows " + shown,
                         ""});
  }
  return grpc::Status::OK;
}

grpc::Status Remote::ApplyGrants(const Grants& grants) {
  iam::SetIamPolicyRequest request;
  request.set_resource(grants.resource);
  iam::Policy& policy = *request.mutable_policy();
  // Read again here: the etag makes sure that no change is lost.
  const grpc::Status status = GetPolicy(grants.resource, &policy);
  if (!status.ok()) return status;
  for (const Grant& grant : grants.grants) {
    const auto found =
        std::find_if(policy.mutable_bindings()->begin(), policy.mutable_bindings()->end(),
                     [&](const auto& binding) {
                       return binding.role() == grant.role && !binding.has_condition();
                     });
    iam::Binding* const binding =
        found == policy.mutable_bindings()->end() ? policy.add_bindings() : &*found;
    binding->set_role(grant.role);
    if (std::find(binding->members().begin(), binding->members().end(), grant.member) ==
        binding->members().end()) {
      binding->add_members(grant.member);
    }
  }
  grpc::ClientContext context;
  admin_->Prepare(&context, "resource", grants.resource);
  iam::Policy answer;
  return admin_->policies()->SetIamPolicy(&context, request, &answer);
}

}  // namespace postbox::cli
