#include "worker/pubsub/credentials.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

namespace postbox::pubsub {

namespace {

constexpr char kCredentialsVariable[] = "GOOGLE_APPLICATION_CREDENTIALS";

struct CredentialsFile {
  std::string type;
  std::string quota_project;
};

std::string StringMember(const nlohmann::json& object, const char* name) {
  const auto member = object.find(name);
  return member != object.end() && member->is_string() ? member->get<std::string>() : "";
}

// Why the file cannot be used; empty if it can.
std::string ReadCredentialsFile(const std::string& path, CredentialsFile* result) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return "cannot be read: " + std::string(std::strerror(errno != 0 ? errno : EIO));
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return "is not a JSON object";
  result->type = StringMember(json, "type");
  result->quota_project = StringMember(json, "quota_project_id");
  if (result->type != "service_account" && result->type != "authorized_user" &&
      result->type != "external_account") {
    return "has credentials of type \"" + result->type +
           "\"; service_account, authorized_user and external_account are supported";
  }
  return "";
}

std::string WellKnownFile() {
  const char* home = std::getenv("HOME");
  return home == nullptr
             ? ""
             : std::string(home) + "/.config/gcloud/application_default_credentials.json";
}

}  // namespace

std::optional<Credentials> MakeCredentials(const Endpoint& endpoint, std::string* error) {
  if (endpoint.plaintext) return Credentials{grpc::InsecureChannelCredentials(), ""};

  CredentialsFile file;
  std::string well_known_problem;
  const char* named = std::getenv(kCredentialsVariable);
  if (named != nullptr && *named != '\0') {
    const std::string problem = ReadCredentialsFile(named, &file);
    if (!problem.empty()) {
      *error = std::string("the file \"") + named + "\" named by " + kCredentialsVariable + " " +
               problem;
      return std::nullopt;
    }
  } else {
    well_known_problem = ReadCredentialsFile(WellKnownFile(), &file);
  }
  std::shared_ptr<grpc::ChannelCredentials> channel = grpc::GoogleDefaultCredentials();
  if (channel == nullptr) {
    *error = "no usable Google credentials: ";
    if (named != nullptr && *named != '\0') {
      *error += std::string("the file \"") + named + "\" named by " + kCredentialsVariable +
                " lacks a member or has one that is not valid";
    } else {
      *error += std::string(kCredentialsVariable) + " is not set, \"" + WellKnownFile() + "\" " +
                (well_known_problem.empty() ? "is not valid" : well_known_problem) +
                ", and there is no metadata server of Google Cloud";
    }
    return std::nullopt;
  }
  return Credentials{std::move(channel), file.quota_project};
}

}  // namespace postbox::pubsub
