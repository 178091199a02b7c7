#include "worker/cli/base/open_place.h"

#include <cstdio>
#include <cstdlib>

#include "proto/rules/endpoint.h"
#include "proto/rules/resource_name.h"
#include "worker/cli/base/operator_session.h"

namespace postbox::cli {
namespace {

// The database says where Pub/Sub is, unless the command line does.
std::string AskDatabase(const std::string& dsn, PubSubPlace* place, std::string* remedy) {
  std::string error;
  const auto connection = OpenDatabase(dsn, "postbox", &error);
  if (connection) error = AskForPlace(connection.get(), place);
  if (!error.empty()) {
    *remedy = "pass --project and --endpoint, or " + ConnectionRemedy(error);
    return "no --project is given, and the database cannot be asked: " + error;
  }
  if (!place->endpoint_known) {
    *remedy = "pass --endpoint, or run GRANT pg_monitor to the role";
    return "the role may not read postbox.endpoint";
  }
  const std::string problem = pubsub::CheckProjectId(place->project);
  if (!problem.empty()) *remedy = "pass --project, or set postbox.project_id";
  return problem;
}

}  // namespace

int Fail(const std::string& message, const std::string& remedy) {
  std::fprintf(stderr, "postbox: %s\n", message.c_str());
  if (!remedy.empty()) std::fprintf(stderr, "remedy: %s\n", remedy.c_str());
  return 1;
}

const char* RemedyOf(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::NOT_FOUND:
      return "see postbox topics and postbox subscriptions";
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return "check --endpoint, the network, DNS and firewalls; postbox doctor gives details";
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::UNAUTHENTICATED:
      return "grant the role to the account of the credentials, or set "
             "GOOGLE_APPLICATION_CREDENTIALS";
    default:
      return "";
  }
}

int Fail(const grpc::Status& status) {
  return Fail(StatusText(status), RemedyOf(status.error_code()));
}

std::string OpenPlace::Name(std::string_view collection, const std::string& name,
                            std::string* problem) const {
  if (name.starts_with("projects/")) return name;
  *problem =
      collection == "topics" ? pubsub::CheckTopicName(name) : pubsub::CheckSubscriptionName(name);
  if (!problem->empty()) return "";
  return "projects/" + project + "/" + std::string(collection) + "/" + name;
}

std::string OpenPlace::Name(std::string_view collection, const std::string& name) const {
  std::string problem;
  std::string full = Name(collection, name, &problem);
  if (full.empty()) Fail(problem);
  return full;
}

std::optional<OpenPlace> Connect(const PlaceOptions& options, Failure* failure) {
  const bool ask = options.project.empty();
  PubSubPlace place{.project = ask ? options.file_project : options.project,
                    .endpoint = options.endpoint,
                    .quota_project = ""};
  std::string problem = ask ? AskDatabase(options.dsn, &place, &failure->remedy)
                            : pubsub::CheckProjectId(place.project);
  pubsub::Endpoint endpoint;
  if (problem.empty()) {
    pubsub::ParseEndpoint(place.endpoint, std::getenv("PUBSUB_EMULATOR_HOST"), &endpoint, &problem);
  }
  if (problem.empty()) {
    OpenPlace broker{PubSubAdmin::Open(endpoint, place.quota_project, &problem), place.project};
    if (broker.admin) return broker;
  }
  failure->problem = problem;
  return std::nullopt;
}

std::optional<OpenPlace> Connect(const PlaceOptions& options) {
  Failure failure;
  auto broker = Connect(options, &failure);
  if (!broker) Fail(failure.problem, failure.remedy);
  return broker;
}

}  // namespace postbox::cli
