#include "worker/pubsub/auth/token_request.h"

#include <absl/strings/escaping.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_replace.h>
#include <absl/time/time.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <utility>

#include "proto/rules/url_encode.h"
#include "worker/pubsub/auth/jwt.h"

namespace postbox::pubsub {

namespace {

using nlohmann::json;
using WallClock = std::chrono::system_clock;

constexpr char kPubSubScope[] = "https://www.googleapis.com/auth/pubsub";
constexpr char kPlatformScope[] = "https://www.googleapis.com/auth/cloud-platform";
// Google takes no self-signed token that lives for longer.
constexpr std::chrono::seconds kSignedLife{3600};
constexpr std::chrono::seconds kLongestLife{43200};
constexpr std::chrono::seconds kUsualLife{300};  // of a token that does not say
constexpr std::chrono::milliseconds kProbeTimeout{1500};
constexpr std::size_t kMostSaid = 300;
constexpr std::size_t kTokenRun = 20;
constexpr char kFlavor[] = "Google";

std::string Form(const std::vector<std::pair<std::string, std::string>>& fields) {
  std::string form;
  for (const auto& [name, value] : fields) {
    if (!form.empty()) form += '&';
    form += name + "=" + UrlEncode(value);
  }
  return form;
}

HttpRequest FormRequest(const std::string& url, std::string form) {
  return {.url = url,
          .headers = {{"Content-Type", "application/x-www-form-urlencoded"}},
          .body = std::move(form)};
}

std::string TextIn(const json& object, const char* name) {
  if (!object.is_object()) return "";
  const auto member = object.find(name);
  return member != object.end() && member->is_string() ? member->get<std::string>() : "";
}

// OAuth has {"error": "code", "error_description": "text"}, Google's other services
// {"error": {"status": "CODE", "message": "text"}}. Nothing else is quoted.
std::string SaidBy(const std::string& body) {
  const json answer = json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object() || !answer.contains("error")) return "";
  const json& error = answer["error"];
  const std::string code = error.is_string() ? error.get<std::string>() : TextIn(error, "status");
  const std::string text =
      error.is_string() ? TextIn(answer, "error_description") : TextIn(error, "message");
  return code.empty() || text.empty() ? code + text : code + ": " + text;
}

std::optional<std::chrono::seconds> SecondsIn(const json& answer, const char* name) {
  const auto member = answer.find(name);
  if (member == answer.end()) return kUsualLife;
  // A number of JSON, of which some servers make a text.
  double seconds = 0;
  if (member->is_number()) {
    seconds = member->get<double>();
  } else if (!member->is_string() || !absl::SimpleAtod(member->get<std::string>(), &seconds)) {
    return std::nullopt;
  }
  if (!(seconds >= 1)) return std::nullopt;
  return std::chrono::seconds(
      static_cast<std::int64_t>(std::min(seconds, static_cast<double>(kLongestLife.count()))));
}

// It becomes a header. gRPC ends the process at one that HTTP/2 does not allow.
bool CanBeHeader(const std::string& token) {
  return !token.empty() && std::all_of(token.begin(), token.end(),
                                       [](unsigned char c) { return c > 0x20 && c < 0x7F; });
}

std::optional<AccessToken> Bad(const std::string& host, TokenError* error) {
  *error = {host + ": the response contains no token"};
  return std::nullopt;
}

// The answer of a token endpoint (RFC 6749).
std::optional<AccessToken> ParseToken(const std::string& host, const std::string& body,
                                      TokenError* error) {
  const json answer = json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object()) return Bad(host, error);
  const std::string token = TextIn(answer, "access_token");
  const std::optional<std::chrono::seconds> life = SecondsIn(answer, "expires_in");
  if (!CanBeHeader(token) || !life) return Bad(host, error);
  return AccessToken{token, WallClock::now() + *life, ClaimOf(TextIn(answer, "id_token"), "email")};
}

// Without white space at its end, which editors leave.
std::string Trimmed(std::string text) {
  const auto end = text.find_last_not_of(" \t\r\n");
  text.erase(end == std::string::npos ? 0 : end + 1);
  return text;
}

HttpRequest MetadataRequest(const std::string& path) {
  return {.url = "http://" + MetadataHost() + "/computeMetadata/v1/" + path,
          .headers = {{"Metadata-Flavor", kFlavor}}};
}

}  // namespace

std::string WithoutSecrets(std::string_view text, std::vector<std::string> secrets) {
  // One may be a part of another one.
  std::stable_sort(secrets.begin(), secrets.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  std::string said(text);
  for (const std::string& secret : secrets) {
    if (secret.size() > 3) said = absl::StrReplaceAll(said, {{secret, "[...]"}});
  }
  std::string result;
  std::string run;
  const auto end_run = [&] {
    const bool token =
        run.size() >= kTokenRun &&
        std::any_of(run.begin(), run.end(), [](unsigned char c) { return std::isdigit(c); }) &&
        std::any_of(run.begin(), run.end(), [](unsigned char c) { return std::isalpha(c); });
    result += token ? "[...]" : run;
    run.clear();
  };
  for (const char c : said) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == '-' || c == '_' || c == '+' || c == '/' || c == '=') {
      run += c;
      continue;
    }
    end_run();
    result += byte < 0x20 || byte >= 0x7F ? ' ' : c;
  }
  end_run();
  if (result.size() > kMostSaid) result = result.substr(0, kMostSaid) + "...";
  return result;
}

std::optional<std::string> TokenRequest::Send(const HttpRequest& request,
                                              const std::vector<std::string>& secrets,
                                              TokenError* error,
                                              std::chrono::milliseconds timeout) {
  std::string problem;
  std::optional<HttpResponse> response = http_->Send(request, timeout, &problem);
  if (!response) {
    *error = {problem, true};
    return std::nullopt;
  }
  if (response->status == 200) return std::move(response->body);
  const std::string said = WithoutSecrets(SaidBy(response->body), secrets);
  *error = {HostOf(request.url) + ": status " + std::to_string(response->status) +
                (said.empty() ? "" : ": " + said),
            response->status >= 500 || response->status == 429 || response->status == 408};
  return std::nullopt;
}

std::optional<AccessToken> TokenRequest::Fetch(const CredentialsFile& file, TokenError* error) {
  if (const auto* key = std::get_if<ServiceAccountKey>(&file.identity)) {
    return Sign(*key, "", error);
  }
  if (const auto* user = std::get_if<AuthorizedUser>(&file.identity)) return Refresh(*user, error);
  if (const auto* account = std::get_if<ExternalAccount>(&file.identity)) {
    if (!account->impersonation) return Exchange(*account, kPubSubScope, error);
    const auto source = Exchange(*account, kPlatformScope, error);
    if (!source) return std::nullopt;
    return Impersonate(*account->impersonation, source->token, error);
  }
  if (const auto* account = std::get_if<ImpersonatedAccount>(&file.identity)) {
    const auto source = SourceToken(*account->source, error);
    if (!source) return std::nullopt;
    return Impersonate(account->impersonation, source->token, error);
  }
  return AskMetadataServer(error);
}

std::optional<AccessToken> TokenRequest::SourceToken(const CredentialsFile& source,
                                                     TokenError* error) {
  if (const auto* key = std::get_if<ServiceAccountKey>(&source.identity)) {
    return Sign(*key, kPlatformScope, error);
  }
  const auto* account = std::get_if<ExternalAccount>(&source.identity);
  if (account != nullptr && !account->impersonation) {
    return Exchange(*account, kPlatformScope, error);
  }
  return Fetch(source, error);
}

std::optional<AccessToken> TokenRequest::Sign(const ServiceAccountKey& key,
                                              const std::string& scope, TokenError* error) {
  const WallClock::time_point now = WallClock::now();
  const JwtUse use = scope.empty() ? JwtUse{.audience = audience_} : JwtUse{.scope = scope};
  std::string problem;
  std::optional<std::string> token = SignJwt(key, use, now, kSignedLife, &problem);
  if (!token) {
    *error = {problem};
    return std::nullopt;
  }
  return AccessToken{std::move(*token), now + kSignedLife, key.email};
}

std::optional<AccessToken> TokenRequest::Refresh(const AuthorizedUser& user, TokenError* error) {
  const HttpRequest request =
      FormRequest(user.token_url, Form({{"grant_type", "refresh_token"},
                                        {"client_id", user.client_id},
                                        {"client_secret", user.client_secret},
                                        {"refresh_token", user.refresh_token}}));
  const auto body = Send(request, {user.client_secret, user.refresh_token}, error);
  if (!body) return std::nullopt;
  auto token = ParseToken(HostOf(user.token_url), *body, error);
  if (token && token->identity.empty()) token->identity = user.account;
  return token;
}

std::optional<std::string> TokenRequest::SubjectToken(const SubjectTokenSource& source,
                                                      TokenError* error) {
  std::optional<std::string> text;
  const std::string name = source.url.empty()
                               ? "the file of the subject token \"" + source.file + "\" "
                               : "the subject token of " + HostOf(source.url) + " ";
  if (source.url.empty()) {
    std::string problem;
    text = ReadSmallFile(source.file, &problem);
    if (!text) *error = {name + problem};
  } else {
    std::vector<std::string> secrets;
    for (const auto& [header, value] : source.headers) secrets.push_back(value);
    text = Send({.url = source.url, .headers = source.headers}, secrets, error);
  }
  if (!text) return std::nullopt;
  if (!source.json_member.empty()) {
    text =
        TextIn(json::parse(*text, nullptr, /*allow_exceptions=*/false), source.json_member.c_str());
  }
  text = Trimmed(std::move(*text));
  if (text->empty()) {
    *error = {name +
              (source.json_member.empty() ? "is empty" : "has no member " + source.json_member)};
    return std::nullopt;
  }
  return text;
}

std::optional<AccessToken> TokenRequest::Exchange(const ExternalAccount& account,
                                                  const std::string& scope, TokenError* error) {
  const auto subject = SubjectToken(account.source, error);
  if (!subject) return std::nullopt;
  std::vector<std::pair<std::string, std::string>> fields = {
      {"grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"},
      {"audience", account.audience},
      {"scope", scope},
      {"requested_token_type", "urn:ietf:params:oauth:token-type:access_token"},
      {"subject_token", *subject},
      {"subject_token_type", account.subject_token_type}};
  if (!account.workforce_project.empty() && account.client_id.empty()) {
    fields.emplace_back("options", json({{"userProject", account.workforce_project}})
                                       .dump(-1, ' ', false, json::error_handler_t::replace));
  }
  HttpRequest request = FormRequest(account.token_url, Form(fields));
  if (!account.client_id.empty()) {
    request.headers.emplace_back(
        "Authorization",
        "Basic " + absl::Base64Escape(account.client_id + ":" + account.client_secret));
  }
  const auto body = Send(request, {*subject, account.client_secret}, error);
  if (!body) return std::nullopt;
  auto token = ParseToken(HostOf(account.token_url), *body, error);
  if (token) token->identity = account.audience;
  return token;
}

std::optional<AccessToken> TokenRequest::Impersonate(const Impersonation& impersonation,
                                                     const std::string& source_token,
                                                     TokenError* error) {
  const json message = {{"delegates", impersonation.delegates},
                        {"scope", {kPubSubScope}},
                        {"lifetime", std::to_string(impersonation.lifetime_seconds) + "s"}};
  const HttpRequest request = {
      .url = impersonation.url,
      .headers = {{"Content-Type", "application/json"},
                  {"Authorization", "Bearer " + source_token}},
      .body = message.dump(-1, ' ', false, json::error_handler_t::replace)};
  const auto body = Send(request, {source_token}, error);
  if (!body) return std::nullopt;
  const json answer = json::parse(*body, nullptr, /*allow_exceptions=*/false);
  const std::string token = TextIn(answer, "accessToken");
  absl::Time expires;
  std::string problem;
  if (!CanBeHeader(token) ||
      !absl::ParseTime(absl::RFC3339_full, TextIn(answer, "expireTime"), &expires, &problem)) {
    return Bad(HostOf(impersonation.url), error);
  }
  const WallClock::time_point now = WallClock::now();
  if (expires <= absl::FromChrono(now)) {
    // If it were taken, the next one would be asked for at once, without a pause.
    *error = {HostOf(impersonation.url) + ": the token has already expired; check the clock"};
    return std::nullopt;
  }
  const absl::Time latest = absl::FromChrono(now + kLongestLife);
  return AccessToken{token, absl::ToChronoTime(std::min(expires, latest)), impersonation.account()};
}

std::optional<AccessToken> TokenRequest::AskMetadataServer(TokenError* error) {
  const std::string account = "instance/service-accounts/default/";
  const auto body =
      Send(MetadataRequest(account + "token?scopes=" + UrlEncode(kPubSubScope)), {}, error);
  if (!body) return std::nullopt;
  auto token = ParseToken(MetadataHost(), *body, error);
  if (!token) return std::nullopt;
  // The name is for people only: the token does not wait for it.
  TokenError ignored;
  if (const auto email = Send(MetadataRequest(account + "email"), {}, &ignored, kProbeTimeout)) {
    token->identity = Trimmed(*email);
  }
  return token;
}

bool FindsMetadataServer(HttpClient* http) {
  std::string error;
  const auto response = http->Send(MetadataRequest(""), kProbeTimeout, &error);
  return response && response->metadata_flavor == kFlavor;
}

}  // namespace postbox::pubsub
