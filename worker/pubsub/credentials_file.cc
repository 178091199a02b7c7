#include "worker/pubsub/credentials_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "proto/rules/resource_name.h"
#include "proto/rules/utf8.h"
#include "worker/pubsub/credential_spec.h"

namespace postbox::pubsub {

namespace {

// The files that Google makes have a few kilobytes. Whatever else is named (a device, a log) is not
// read to its end.
constexpr std::size_t kMostBytes = std::size_t{1} << 20;
constexpr std::size_t kShownBytes = 64;

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

std::string StringMember(const nlohmann::json& object, const char* name) {
  const auto member = object.find(name);
  return member != object.end() && member->is_string() ? member->get<std::string>() : "";
}

}  // namespace

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
  if (spec.metadata_server) return "metadata server";
  const std::string path = spec.file.empty() ? CredentialsPath() : spec.file;
  std::string text;
  const int problem = path.empty() ? ENOENT : ReadFile(path, &text);
  return path + ' ' + std::to_string(problem) + ' ' +
         std::to_string(std::hash<std::string>()(text));
}

std::optional<CredentialsFile> ReadCredentialsFile(const std::string& path, std::string* error) {
  std::string text;
  if (const int problem = ReadFile(path, &text); problem != 0) {
    *error = "cannot be read: " + std::string(std::strerror(problem));
    return std::nullopt;
  }
  return ParseCredentials(text, error);
}

std::optional<CredentialsFile> ParseCredentials(const std::string& text, std::string* error) {
  if (text.size() > kMostBytes) {
    *error = "is longer than " + std::to_string(kMostBytes) + " bytes";
    return std::nullopt;
  }
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    *error = "is not a JSON object";
    return std::nullopt;
  }
  CredentialsFile file{StringMember(json, "type"), StringMember(json, "quota_project_id"),
                       StringMember(json, "client_email"), text};
  if (file.type != "service_account" && file.type != "authorized_user" &&
      file.type != "external_account") {
    *error = "has credentials of type " + Shown(file.type, kShownBytes) +
             "; service_account, authorized_user and external_account are supported";
    return std::nullopt;
  }
  // It becomes a header of every request. gRPC ends the process at one that HTTP/2 does not allow.
  if (!file.quota_project.empty()) {
    if (const std::string problem = CheckProjectId(file.quota_project); !problem.empty()) {
      *error = "has a quota_project_id that cannot be used: " + problem;
      return std::nullopt;
    }
  }
  return file;
}

}  // namespace postbox::pubsub
