#include "worker/pubsub/credentials.h"

#include <cstdlib>
#include <utility>

#include "worker/pubsub/credentials_file.h"

namespace postbox::pubsub {

namespace {

constexpr char kCredentialsVariable[] = "GOOGLE_APPLICATION_CREDENTIALS";

std::string WellKnownFile() {
  const char* home = std::getenv("HOME");
  return home == nullptr || *home == '\0'
             ? ""
             : std::string(home) + "/.config/gcloud/application_default_credentials.json";
}

// Why there are none where nobody has named a file. Services are often started without HOME.
std::string WithoutNamedFile(const std::string& problem) {
  const std::string file = WellKnownFile();
  std::string text = kCredentialsVariable;
  if (file.empty()) {
    text += " and HOME are not set";
  } else {
    text += " is not set, \"" + file + "\" " + (problem.empty() ? "is not valid" : problem);
  }
  return text + ", and there is no metadata server of Google Cloud; set " + kCredentialsVariable +
         " to a file of credentials, in the environment of this process";
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
      *error += WithoutNamedFile(problem);
    }
    return std::nullopt;
  }
  return Credentials{std::move(channel), file ? file->quota_project : ""};
}

}  // namespace postbox::pubsub
