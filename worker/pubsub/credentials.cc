#include "worker/pubsub/credentials.h"

#include <cstdlib>
#include <utility>

#include "worker/pubsub/credentials_file.h"

namespace postbox::pubsub {

namespace {

constexpr char kCredentialsVariable[] = "GOOGLE_APPLICATION_CREDENTIALS";

std::string WellKnownFile() {
  const char* home = std::getenv("HOME");
  return home == nullptr
             ? ""
             : std::string(home) + "/.config/gcloud/application_default_credentials.json";
}

}  // namespace

std::optional<Credentials> MakeCredentials(const Endpoint& endpoint, std::string* error) {
  if (endpoint.plaintext) return Credentials{grpc::InsecureChannelCredentials(), ""};

  std::optional<CredentialsFile> file;
  std::string problem;
  const char* named = std::getenv(kCredentialsVariable);
  if (named != nullptr && *named != '\0') {
    file = ReadCredentialsFile(named, &problem);
    if (!file) {
      *error = std::string("the file \"") + named + "\" named by " + kCredentialsVariable + " " +
               problem;
      return std::nullopt;
    }
  } else {
    file = ReadCredentialsFile(WellKnownFile(), &problem);
  }
  std::shared_ptr<grpc::ChannelCredentials> channel = grpc::GoogleDefaultCredentials();
  if (channel == nullptr) {
    *error = "no usable Google credentials: ";
    if (named != nullptr && *named != '\0') {
      *error += std::string("the file \"") + named + "\" named by " + kCredentialsVariable +
                " lacks a member or has one that is not valid";
    } else {
      *error += std::string(kCredentialsVariable) + " is not set, \"" + WellKnownFile() + "\" " +
                (problem.empty() ? "is not valid" : problem) +
                ", and there is no metadata server of Google Cloud";
    }
    return std::nullopt;
  }
  return Credentials{std::move(channel), file ? file->quota_project : ""};
}

}  // namespace postbox::pubsub
