#include "worker/pubsub/credentials.h"

#include <utility>

#include "worker/pubsub/credentials_file.h"

namespace postbox::pubsub {

namespace {

// Why there are none where nobody has named a file. Services are often started without HOME.
std::string WithoutNamedFile(const std::string& problem) {
  const std::string file = CredentialsPath();
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

  bool named = false;
  const std::string path = CredentialsPath(&named);
  const std::string name = "the file \"" + path + "\" named by " + kCredentialsVariable + " ";
  std::string problem;
  const std::optional<CredentialsFile> file = ReadCredentialsFile(path, &problem);
  if (named && !file) {
    *error = name + problem;
    return std::nullopt;
  }
  std::shared_ptr<grpc::ChannelCredentials> channel = grpc::GoogleDefaultCredentials();
  if (channel == nullptr) {
    *error =
        "no usable Google credentials: " +
        (named ? name + "lacks a member or has one that is not valid" : WithoutNamedFile(problem));
    return std::nullopt;
  }
  return Credentials{std::move(channel), file ? file->quota_project : ""};
}

}  // namespace postbox::pubsub
