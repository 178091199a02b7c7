// Whose identity a client of Pub/Sub takes, and what can be told of it.
//
// Plain header: standard library only. A specification may hold a secret, so nothing of `json` goes
// into a log, an error or a state.
#ifndef POSTBOX_WORKER_PUBSUB_AUTH_CREDENTIAL_SPEC_H_
#define POSTBOX_WORKER_PUBSUB_AUTH_CREDENTIAL_SPEC_H_

#include <chrono>
#include <optional>
#include <string>

namespace postbox::pubsub {

// At most one member is set. If none is, Google's application default credentials are looked for in
// the environment of the process: the file named by GOOGLE_APPLICATION_CREDENTIALS; gcloud's file;
// the metadata server.
struct CredentialSpec {
  std::string json{};            // what such a file has in it
  std::string file{};            // its path; it is read again when it changes
  bool metadata_server = false;  // the account of the machine

  bool operator==(const CredentialSpec&) const = default;
};

// Another text when the credentials are other ones: another specification, another content of the
// file, or when the file can be read or not any more. Reads the file. It tells nothing of a secret.
std::string CredentialsStamp(const CredentialSpec& spec);

// A copy of what is known at one moment.
struct CredentialState {
  // The type in the file: service_account, authorized_user, external_account,
  // impersonated_service_account; or metadata_server. Empty for plain text, and if the credentials
  // cannot be read.
  std::string kind{};
  std::string identity{};  // an e-mail address or a principal; empty if it is not known
  // Of the token that is in use; nothing if there is none.
  std::optional<std::chrono::system_clock::time_point> valid_until{};
  std::string last_error{};  // why there is no token, or no fresh one; empty if there is one

  bool operator==(const CredentialState&) const = default;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_AUTH_CREDENTIAL_SPEC_H_
