#include "worker/pubsub/auth/credentials_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "proto/rules/resource_name.h"
#include "proto/rules/utf8.h"
#include "worker/pubsub/auth/credential_spec.h"
#include "worker/pubsub/http_client.h"

namespace postbox::pubsub {

namespace {

using nlohmann::json;

// The files that Google makes have a few kilobytes. Whatever else is named (a device, a log) is not
// read to its end.
constexpr std::size_t kMostBytes = std::size_t{1} << 20;
constexpr std::size_t kShownBytes = 64;
constexpr std::size_t kMostEntries = 16;  // delegates, headers
constexpr char kGoogleTokenUrl[] = "https://oauth2.googleapis.com/token";
constexpr char kImpersonationPath[] = "/serviceAccounts/";
constexpr char kImpersonationVerb[] = ":generateAccessToken";

// With system calls: an input stream throws when a read fails, as it does for a directory. Returns
// 0, or the error number.
int ReadFile(const std::string& path, std::string* text) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return errno;
  char buffer[4096];
  ssize_t count = 0;
  while (text->size() <= kMostBytes && (count = read(file, buffer, sizeof buffer)) > 0) {
    text->append(buffer, static_cast<std::size_t>(count));
  }
  const int error = count < 0 ? errno : 0;
  close(file);
  return error;
}

// Reads members of an object, and keeps the first thing that is wrong.
class Reader {
 public:
  Reader(const json& object, std::string* error) : object_(object), error_(error) {}

  bool good() const { return error_->empty(); }
  void Wrong(const std::string& text) const {
    if (good()) *error_ = text;
  }

  std::string Optional(const char* name) const {
    const auto member = object_.find(name);
    if (member == object_.end() || member->is_null()) return "";
    if (!member->is_string()) {
      Wrong(std::string("has a ") + name + " that is not a string");
      return "";
    }
    return member->get<std::string>();
  }
  std::string Needed(const char* name) const {
    std::string text = Optional(name);
    if (text.empty()) Wrong(std::string("lacks the member ") + name);
    return text;
  }
  // What becomes a header, or a part of one.
  std::string Printable(const char* name, std::string text) const {
    const bool good = std::all_of(text.begin(), text.end(), [](char c) {
      return static_cast<unsigned char>(c) >= 0x20 && static_cast<unsigned char>(c) < 0x7F;
    });
    if (!good) Wrong(std::string("has a ") + name + " that cannot be sent as a header");
    return text;
  }
  std::string TokenUrl(const char* name, std::string url) const {
    const std::string problem = good() ? CheckTokenUrl(url) : "";
    if (!problem.empty())
      Wrong(std::string("has a ") + name + " that cannot be used: it " + problem);
    return url;
  }
  const json* Object(const char* name) const {
    const auto member = object_.find(name);
    if (member == object_.end() || member->is_null()) return nullptr;
    if (member->is_object()) return &*member;
    Wrong(std::string("has a ") + name + " that is not an object");
    return nullptr;
  }
  std::vector<std::string> Texts(const char* name) const {
    std::vector<std::string> texts;
    const auto member = object_.find(name);
    if (member == object_.end() || member->is_null()) return texts;
    bool good = member->is_array() && member->size() <= kMostEntries;
    for (const json& text : *member) {
      good = good && text.is_string();
      if (good) texts.push_back(text.get<std::string>());
    }
    if (!good) Wrong(std::string("has ") + name + " that are not a list of at most 16 strings");
    return texts;
  }

 private:
  const json& object_;
  std::string* const error_;
};

ServiceAccountKey ParseServiceAccount(const Reader& reader) {
  return {reader.Needed("client_email"), reader.Optional("private_key_id"),
          reader.Needed("private_key")};
}

AuthorizedUser ParseAuthorizedUser(const Reader& reader) {
  std::string url = reader.Optional("token_uri");
  if (url.empty()) url = kGoogleTokenUrl;
  return {reader.Optional("account"), reader.Needed("client_id"), reader.Needed("client_secret"),
          reader.Needed("refresh_token"), reader.TokenUrl("token_uri", std::move(url))};
}

Impersonation ParseImpersonation(const Reader& reader, std::string url) {
  Impersonation result{reader.TokenUrl("service_account_impersonation_url", std::move(url)),
                       reader.Texts("delegates")};
  if (result.account().empty()) {
    reader.Wrong(
        "has a service_account_impersonation_url that does not end with an account and "
        ":generateAccessToken");
  }
  return result;
}

SubjectTokenSource ParseSubjectTokenSource(const json& object, std::string* error) {
  const Reader reader(object, error);
  SubjectTokenSource source{reader.Optional("file"), reader.Optional("url"), {}, ""};
  if (object.contains("environment_id") || object.contains("executable")) {
    reader.Wrong("has a credential_source for AWS or an executable; file and url are supported");
  } else if (source.file.empty() == source.url.empty()) {
    reader.Wrong("has a credential_source without a file or a url, or with both");
  }
  if (!source.url.empty()) reader.TokenUrl("credential_source.url", source.url);
  if (const json* headers = reader.Object("headers")) {
    for (const auto& [name, value] : headers->items()) {
      if (!value.is_string() || source.headers.size() == kMostEntries) {
        reader.Wrong("has headers in its credential_source that are not at most 16 strings");
        break;
      }
      source.headers.emplace_back(reader.Printable("header of its credential_source", name),
                                  reader.Printable("header of its credential_source", value));
    }
  }
  if (const json* format = reader.Object("format")) {
    const Reader in(*format, error);
    const std::string type = in.Optional("type");
    if (type == "json") {
      source.json_member = in.Needed("subject_token_field_name");
    } else if (!type.empty() && type != "text") {
      reader.Wrong("has a format of its credential_source that is neither text nor json");
    }
  }
  return source;
}

ExternalAccount ParseExternalAccount(const Reader& reader, std::string* error) {
  ExternalAccount account;
  account.audience = reader.Needed("audience");
  account.subject_token_type = reader.Needed("subject_token_type");
  account.token_url = reader.TokenUrl("token_url", reader.Needed("token_url"));
  account.client_id = reader.Optional("client_id");
  account.client_secret = reader.Optional("client_secret");
  account.workforce_project = reader.Optional("workforce_pool_user_project");
  const json* source = reader.Object("credential_source");
  if (source == nullptr) {
    reader.Wrong("lacks the member credential_source");
  } else {
    account.source = ParseSubjectTokenSource(*source, error);
  }
  if (std::string url = reader.Optional("service_account_impersonation_url"); !url.empty()) {
    account.impersonation = ParseImpersonation(reader, std::move(url));
    const json* how = reader.Object("service_account_impersonation");
    if (how != nullptr && how->contains("token_lifetime_seconds")) {
      const json& lifetime = (*how)["token_lifetime_seconds"];
      if (lifetime.is_number_integer() && lifetime >= 600 && lifetime <= 43200) {
        account.impersonation->lifetime_seconds = lifetime.get<int>();
      } else {
        reader.Wrong("has a token_lifetime_seconds that is not from 600 to 43200");
      }
    }
  }
  return account;
}

std::optional<CredentialsFile> ParseObject(const json& object, bool is_source, std::string* error);

ImpersonatedAccount ParseImpersonatedAccount(const Reader& reader) {
  ImpersonatedAccount account;
  account.impersonation =
      ParseImpersonation(reader, reader.Needed("service_account_impersonation_url"));
  const json* source = reader.Object("source_credentials");
  if (source == nullptr) {
    reader.Wrong("lacks the member source_credentials");
  } else if (reader.good()) {
    std::string problem;
    std::optional<CredentialsFile> file = ParseObject(*source, /*is_source=*/true, &problem);
    if (file) {
      account.source = std::make_shared<CredentialsFile>(std::move(*file));
    } else {
      reader.Wrong("has source_credentials that cannot be used: this " + problem);
    }
  }
  return account;
}

std::optional<CredentialsFile> ParseObject(const json& object, bool is_source, std::string* error) {
  const Reader reader(object, error);
  CredentialsFile file;
  file.type = reader.Optional("type");
  file.quota_project = reader.Optional("quota_project_id");
  if (file.type == "service_account") {
    file.identity = ParseServiceAccount(reader);
  } else if (file.type == "authorized_user") {
    file.identity = ParseAuthorizedUser(reader);
  } else if (file.type == "external_account") {
    file.identity = ParseExternalAccount(reader, error);
  } else if (file.type == "impersonated_service_account" && !is_source) {
    file.identity = ParseImpersonatedAccount(reader);
  } else {
    reader.Wrong("has credentials of type " + Shown(file.type, kShownBytes) +
                 "; service_account, authorized_user, external_account and "
                 "impersonated_service_account are supported");
  }
  // It becomes a header of every request. gRPC ends the process at one that HTTP/2 does not allow.
  if (!file.quota_project.empty()) {
    const std::string problem = CheckProjectId(file.quota_project);
    if (!problem.empty()) reader.Wrong("has a quota_project_id that cannot be used: " + problem);
  }
  if (!reader.good()) return std::nullopt;
  return file;
}

}  // namespace

std::string Impersonation::account() const {
  const std::size_t begin = url.rfind(kImpersonationPath);
  if (begin == std::string::npos || !url.ends_with(kImpersonationVerb)) return "";
  const std::size_t from = begin + sizeof kImpersonationPath - 1;
  const std::size_t to = url.size() - (sizeof kImpersonationVerb - 1);
  return from < to ? url.substr(from, to - from) : "";
}

std::string CredentialsPath(bool* named) {
  const char* path = std::getenv(kCredentialsVariable);
  const bool is_named = path != nullptr && *path != '\0';
  if (named != nullptr) *named = is_named;
  if (is_named) return path;
  const char* home = std::getenv("HOME");
  return home == nullptr || *home == '\0'
             ? ""
             : std::string(home) + "/.config/gcloud/application_default_credentials.json";
}

std::string CredentialsStamp(const CredentialSpec& spec) {
  if (!spec.json.empty()) return "json " + std::to_string(std::hash<std::string>()(spec.json));
  if (spec.metadata_server) return kMetadataServerKind;
  const std::string path = spec.file.empty() ? CredentialsPath() : spec.file;
  std::string text;
  const int problem = path.empty() ? ENOENT : ReadFile(path, &text);
  return path + ' ' + std::to_string(problem) + ' ' +
         std::to_string(std::hash<std::string>()(text));
}

std::optional<std::string> ReadSmallFile(const std::string& path, std::string* error) {
  std::string text;
  if (const int problem = ReadFile(path, &text); problem != 0) {
    *error = "cannot be read: " + std::string(std::strerror(problem));
    return std::nullopt;
  }
  if (text.size() > kMostBytes) {
    *error = "is longer than " + std::to_string(kMostBytes) + " bytes";
    return std::nullopt;
  }
  return text;
}

std::optional<CredentialsFile> ReadCredentialsFile(const std::string& path, std::string* error) {
  const std::optional<std::string> text = ReadSmallFile(path, error);
  if (!text) return std::nullopt;
  return ParseCredentials(*text, error);
}

std::optional<CredentialsFile> ParseCredentials(const std::string& text, std::string* error) {
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    *error = "is not a JSON object";
    return std::nullopt;
  }
  error->clear();
  return ParseObject(object, /*is_source=*/false, error);
}

}  // namespace postbox::pubsub
