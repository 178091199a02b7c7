// What Google credentials say, as a file or another text has them (JSON).
//
// Whatever is wrong is said here, with the name of the member and without its value: tokens are
// asked for later and elsewhere (token_request.h).
#ifndef POSTBOX_WORKER_PUBSUB_AUTH_CREDENTIALS_FILE_H_
#define POSTBOX_WORKER_PUBSUB_AUTH_CREDENTIALS_FILE_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace postbox::pubsub {

// Signs its tokens itself.
struct ServiceAccountKey {
  std::string email;
  std::string key_id;
  std::string private_key;  // PEM
};

// Exchanges a refresh token.
struct AuthorizedUser {
  std::string account;  // may be empty
  std::string client_id;
  std::string client_secret;
  std::string refresh_token;
  std::string token_url;
};

// Where the token of another identity provider is: one of the two.
struct SubjectTokenSource {
  std::string file;
  std::string url;
  std::vector<std::pair<std::string, std::string>> headers;  // for the URL
  std::string json_member;  // that has the token; empty: the whole text is the token
};

// Has another account act: iamcredentials.googleapis.com, generateAccessToken.
struct Impersonation {
  std::string url;
  std::vector<std::string> delegates;
  int lifetime_seconds = 3600;
  std::string account() const;  // of the URL
};

// Workload or workforce identity federation.
struct ExternalAccount {
  std::string audience;
  std::string subject_token_type;
  std::string token_url;
  std::string client_id;  // of a workforce pool's client; may be empty
  std::string client_secret;
  std::string workforce_project;  // that is charged for the exchange; may be empty
  SubjectTokenSource source;
  std::optional<Impersonation> impersonation;
};

struct CredentialsFile;
struct ImpersonatedAccount {
  Impersonation impersonation;
  std::shared_ptr<const CredentialsFile> source;  // of one of the kinds above
};

struct MetadataServer {};

struct CredentialsFile {
  std::string type;           // as CredentialState::kind
  std::string quota_project;  // quota_project_id; empty if the file names none
  std::variant<ServiceAccountKey, AuthorizedUser, ExternalAccount, ImpersonatedAccount,
               MetadataServer>
      identity;
};

inline constexpr char kCredentialsVariable[] = "GOOGLE_APPLICATION_CREDENTIALS";
inline constexpr char kMetadataServerKind[] = "metadata_server";

// The file that the environment names, or else gcloud's; empty if HOME is not set either. `named`,
// if given: whether it is the former.
std::string CredentialsPath(bool* named = nullptr);

// On failure returns nothing, and puts into `error` why the file cannot be used: the rest of a
// sentence that begins with the name of the file.
std::optional<CredentialsFile> ReadCredentialsFile(const std::string& path, std::string* error);

// The same for a text that has been read.
std::optional<CredentialsFile> ParseCredentials(const std::string& text, std::string* error);

// Takes a small file as it is. On failure returns nothing, and puts into `error` why it cannot be
// read: the rest of a sentence that begins with the name of the file.
std::optional<std::string> ReadSmallFile(const std::string& path, std::string* error);

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_AUTH_CREDENTIALS_FILE_H_
