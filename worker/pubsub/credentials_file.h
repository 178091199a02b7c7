// A file with Google credentials, as far as it is read here: what gRPC does not tell, and what can
// be said against the file before gRPC looks for other credentials instead.
#ifndef POSTBOX_WORKER_PUBSUB_CREDENTIALS_FILE_H_
#define POSTBOX_WORKER_PUBSUB_CREDENTIALS_FILE_H_

#include <optional>
#include <string>

namespace postbox::pubsub {

struct CredentialsFile {
  std::string type;
  std::string quota_project;  // quota_project_id; empty if the file names none
  std::string email;          // of a service account
  std::string text;           // all of it, secrets included
};

inline constexpr char kCredentialsVariable[] = "GOOGLE_APPLICATION_CREDENTIALS";

// The file that the environment names, or else gcloud's; empty if HOME is not set either. `named`,
// if given: whether it is the former.
std::string CredentialsPath(bool* named = nullptr);

// On failure returns nothing, and puts into `error` why the file cannot be used: the rest of a
// sentence that begins with the name of the file.
std::optional<CredentialsFile> ReadCredentialsFile(const std::string& path, std::string* error);

// The same for a text that has been read.
std::optional<CredentialsFile> ParseCredentials(const std::string& text, std::string* error);

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_CREDENTIALS_FILE_H_
