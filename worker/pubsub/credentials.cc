#include "worker/pubsub/credentials.h"

#include <utility>

#include "worker/pubsub/credentials_file.h"

namespace postbox::pubsub {

namespace {

constexpr char kScope[] = "https://www.googleapis.com/auth/pubsub";
constexpr long kTokenSeconds = 3600;

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

std::shared_ptr<grpc::ChannelCredentials> OverTls(std::shared_ptr<grpc::CallCredentials> call) {
  if (call == nullptr) return nullptr;
  return grpc::CompositeChannelCredentials(grpc::SslCredentials({}), call);
}

std::shared_ptr<grpc::CallCredentials> CallCredentialsOf(const CredentialsFile& file) {
  if (file.type == "service_account") {
    return grpc::ServiceAccountJWTAccessCredentials(file.text, kTokenSeconds);
  }
  if (file.type == "authorized_user") return grpc::GoogleRefreshTokenCredentials(file.text);
  return grpc::ExternalAccountCredentials(file.text, {kScope});
}

// Of a specification that says where they are.
std::optional<Credentials> MakeGivenCredentials(const CredentialSpec& spec, std::string* error) {
  if (spec.metadata_server) {
    return Credentials{OverTls(grpc::GoogleComputeEngineCredentials()), "", {"metadata_server"}};
  }
  const std::string name =
      spec.json.empty() ? "the file \"" + spec.file + "\" " : "the credential ";
  std::string problem;
  const std::optional<CredentialsFile> file = spec.json.empty()
                                                  ? ReadCredentialsFile(spec.file, &problem)
                                                  : ParseCredentials(spec.json, &problem);
  if (!file) {
    *error = name + problem;
    return std::nullopt;
  }
  std::shared_ptr<grpc::ChannelCredentials> channel = OverTls(CallCredentialsOf(*file));
  if (channel == nullptr) {
    *error = name + "lacks a member or has one that is not valid";
    return std::nullopt;
  }
  return Credentials{std::move(channel), file->quota_project, {file->type, file->email}};
}

}  // namespace

std::optional<Credentials> MakeCredentials(const Endpoint& endpoint, const CredentialSpec& spec,
                                           std::string* error) {
  if (endpoint.plaintext) return Credentials{grpc::InsecureChannelCredentials(), "", {}};
  if (spec != CredentialSpec()) return MakeGivenCredentials(spec, error);

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
  return Credentials{std::move(channel), file ? file->quota_project : "",
                     file ? CredentialState{file->type, file->email} : CredentialState{}};
}

}  // namespace postbox::pubsub
