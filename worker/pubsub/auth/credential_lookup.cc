#include "worker/pubsub/auth/credential_lookup.h"

#include <filesystem>
#include <system_error>

#include "worker/pubsub/auth/token_request.h"

namespace postbox::pubsub {

namespace {

// Why there are none where no file is named. Services are often started without HOME.
std::string WithoutNamedFile(const std::string& path, const std::string& problem) {
  std::string text = std::string("no usable Google credentials: ") + kCredentialsVariable;
  if (path.empty()) {
    text += " and HOME are not set";
  } else {
    text += " is not set, \"" + path + "\" " + problem;
  }
  return text + ", and there is no metadata server of Google Cloud; set " + kCredentialsVariable +
         " to a credentials file, in the environment of this process";
}

// Google's application default credentials. If `on_google_cloud`, it is known that there is a
// metadata server.
std::optional<CredentialsFile> ReadDefaultCredentials(HttpClient* http, bool on_google_cloud,
                                                      std::string* error) {
  bool named = false;
  const std::string path = CredentialsPath(&named);
  std::string problem;
  std::optional<CredentialsFile> file = ReadCredentialsFile(path, &problem);
  if (file) return file;
  if (named) {
    // Another identity than the one that was meant would be worse than none.
    *error = "the file \"" + path + "\" named by " + kCredentialsVariable + " " + problem;
    return std::nullopt;
  }
  std::error_code unreachable;
  if (std::filesystem::exists(path, unreachable)) {
    // So would be that of the machine while the file is written.
    *error = "the file \"" + path + "\" " + problem;
    return std::nullopt;
  }
  if (on_google_cloud || FindsMetadataServer(http)) {
    return CredentialsFile{kMetadataServerKind, "", MetadataServer()};
  }
  *error = WithoutNamedFile(path, problem);
  return std::nullopt;
}

}  // namespace

std::optional<CredentialsFile> ReadCredentials(const CredentialSpec& spec, HttpClient* http,
                                               bool on_google_cloud, std::string* error) {
  if (spec.metadata_server) return CredentialsFile{kMetadataServerKind, "", MetadataServer()};
  std::string problem;
  if (!spec.json.empty()) {
    std::optional<CredentialsFile> file = ParseCredentials(spec.json, &problem);
    if (!file) *error = "the credential " + problem;
    return file;
  }
  if (spec.file.empty()) return ReadDefaultCredentials(http, on_google_cloud, error);
  std::optional<CredentialsFile> file = ReadCredentialsFile(spec.file, &problem);
  if (!file) *error = "the file \"" + spec.file + "\" of the credential " + problem;
  return file;
}

}  // namespace postbox::pubsub
