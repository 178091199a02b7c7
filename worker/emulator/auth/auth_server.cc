#include "worker/emulator/auth/auth_server.h"

#include <httplib.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "worker/emulator/auth/signed_token.h"

namespace postbox::emulator {
namespace {

using httplib::Request;
using httplib::Response;
using nlohmann::json;

constexpr char kJwtGrant[] = "urn:ietf:params:oauth:grant-type:jwt-bearer";
constexpr char kExchangeGrant[] = "urn:ietf:params:oauth:grant-type:token-exchange";
constexpr char kAccessTokenType[] = "urn:ietf:params:oauth:token-type:access_token";
constexpr char kJwtTypes[][48] = {"urn:ietf:params:oauth:token-type:jwt",
                                  "urn:ietf:params:oauth:token-type:id_token"};
constexpr char kPlatformScope[] = "https://www.googleapis.com/auth/cloud-platform";
constexpr char kGoogleTokenUrl[] = "https://oauth2.googleapis.com/token";
constexpr char kMetadata[] = "/computeMetadata/v1/";
constexpr char kMetadataFlavor[] = "Metadata-Flavor";
constexpr char kGoogle[] = "Google";
constexpr std::size_t kMostBytes = 1 << 20;
constexpr std::size_t kThreads = 4;

absl::StatusOr<std::pair<std::string, std::string>> Pair(const std::string& text,
                                                         const char* form) {
  const std::size_t at = text.find('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not of the form ", form));
  }
  return std::make_pair(text.substr(0, at), text.substr(at + 1));
}

void Answer(Response& response, int status, const json& body) {
  response.status = status;
  response.set_content(body.dump(-1, ' ', false, json::error_handler_t::replace),
                       "application/json; charset=utf-8");
}

// RFC 6749, 5.2
void Refuse(Response& response, int status, const std::string& error, absl::string_view text) {
  Answer(response, status, {{"error", error}, {"error_description", std::string(text)}});
}

// As Google's other services do.
void RefuseCall(Response& response, int status, const std::string& code, absl::string_view text) {
  Answer(response, status,
         {{"error", {{"code", status}, {"message", std::string(text)}, {"status", code}}}});
}

class AuthServerImpl final : public AuthServer {
 public:
  AuthServerImpl(std::string project, AuthOptions options, std::shared_ptr<BearerVerifier> verifier,
                 std::shared_ptr<IssuedTokens> issued)
      : project_(std::move(project)),
        options_(std::move(options)),
        life_(absl::Seconds(options_.token_seconds)),
        verifier_(std::move(verifier)),
        issued_(std::move(issued)) {}

  ~AuthServerImpl() override {
    server_.stop();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status ReadOptions() {
    for (const std::string& text : options_.users) {
      const auto user = Pair(text, "EMAIL=REFRESH_TOKEN");
      if (!user.ok()) return user.status();
      users_[user->second] = user->first;
    }
    for (const std::string& text : options_.providers) {
      const auto provider = Pair(text, "AUDIENCE=FILE");
      if (!provider.ok()) return provider.status();
      providers_[provider->first].push_back(provider->second);
    }
    for (const std::string& text : options_.impersonators) {
      const auto pair = Pair(text, "CALLER=EMAIL");
      if (!pair.ok()) return pair.status();
      impersonators_.insert(*pair);
    }
    return absl::OkStatus();
  }

  absl::Status Listen(const std::string& host) {
    server_.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    server_.set_payload_max_length(kMostBytes);
    server_.set_keep_alive_timeout(1);
    const auto handle = [this](void (AuthServerImpl::*handler)(const Request&, Response&)) {
      return [this, handler](const Request& request, Response& response) {
        (this->*handler)(request, response);
      };
    };
    server_.Post("/token", handle(&AuthServerImpl::Token));
    server_.Post("/revoke", handle(&AuthServerImpl::Revoke));
    server_.Post("/v1/token", handle(&AuthServerImpl::Exchange));
    // Newer releases of cpp-httplib take a pattern that has "/:" for one with named parameters.
    server_.Post(R"(/v1/projects/-/serviceAccounts/([^:/]+):(generateAccessToken|disable|enable))",
                 handle(&AuthServerImpl::Account));
    server_.Get(R"(/(computeMetadata/v1/.*)?)", handle(&AuthServerImpl::Metadata));
    const int port = *options_.port;
    port_ =
        port == 0 ? server_.bind_to_any_port(host) : (server_.bind_to_port(host, port) ? port : -1);
    if (port_ < 0) {
      return absl::UnavailableError(absl::StrCat("cannot listen on ", host, ":", port));
    }
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    return absl::OkStatus();
  }

  int port() const override { return port_; }

 private:
  json TokenAnswer(const std::string& account, const std::string& scope) {
    return {{"access_token", issued_->Issue(account, scope, life_)},
            {"expires_in", options_.token_seconds},
            {"token_type", "Bearer"}};
  }

  void Token(const Request& request, Response& response) {
    const std::string grant = request.get_param_value("grant_type");
    if (grant == "refresh_token") return Refresh(request, response);
    if (grant != kJwtGrant) {
      return Refuse(response, 400, "unsupported_grant_type", "Invalid grant_type: " + grant);
    }
    const auto claims = verifier_->CheckSigned(request.get_param_value("assertion"));
    if (!claims.ok()) return Refuse(response, 400, "invalid_grant", claims.status().message());
    if (!IsTokenUrl(claims->audience)) {
      return Refuse(response, 400, "invalid_grant",
                    "Invalid JWT: the audience is not that of this token endpoint");
    }
    if (!claims->scope || claims->scope->empty()) {
      return Refuse(response, 400, "invalid_scope", "Invalid OAuth scope or ID token audience");
    }
    Answer(response, 200, TokenAnswer(claims->issuer, *claims->scope));
  }

  bool IsTokenUrl(absl::string_view audience) const {
    return audience == kGoogleTokenUrl ||
           absl::EndsWith(audience, absl::StrCat(":", port_, "/token"));
  }

  void Refresh(const Request& request, Response& response) {
    if (request.get_param_value("client_id").empty() ||
        request.get_param_value("client_secret").empty()) {
      return Refuse(response, 401, "invalid_client", "The OAuth client was not found.");
    }
    const auto user = users_.find(request.get_param_value("refresh_token"));
    if (user == users_.end() || issued_->IsDisabled(user->second)) {
      return Refuse(response, 400, "invalid_grant", "Token has been expired or revoked.");
    }
    Answer(response, 200, TokenAnswer(user->second, kPlatformScope));
  }

  void Revoke(const Request& request, Response& response) {
    issued_->Revoke(request.get_param_value("token"));
    Answer(response, 200, json::object());
  }

  void Exchange(const Request& request, Response& response) {
    if (request.get_param_value("grant_type") != kExchangeGrant) {
      return Refuse(response, 400, "unsupported_grant_type", "Invalid grant_type.");
    }
    const std::string type = request.get_param_value("subject_token_type");
    if (type != kJwtTypes[0] && type != kJwtTypes[1]) {
      return Refuse(response, 400, "invalid_request", "Invalid subject_token_type.");
    }
    if (request.get_param_value("requested_token_type") != kAccessTokenType) {
      return Refuse(response, 400, "invalid_request", "Invalid requested_token_type.");
    }
    const std::string audience = request.get_param_value("audience");
    const auto provider = providers_.find(audience);
    if (provider == providers_.end()) {
      return Refuse(response, 400, "invalid_target",
                    "The target service indicated by the \"audience\" parameters is invalid.");
    }
    const auto claims = CheckSignedToken(
        request.get_param_value("subject_token"),
        [&](const std::string& /*issuer*/) { return provider->second; }, absl::Now());
    if (!claims.ok()) return Refuse(response, 400, "invalid_grant", claims.status().message());
    if (claims->audience != audience && claims->audience != "https:" + audience) {
      return Refuse(response, 400, "invalid_grant",
                    "The audience in ID Token does not match the expected audience.");
    }
    const std::string principal =
        absl::StrCat("principal:", audience, "/subject/", claims->subject);
    json answer = TokenAnswer(principal, request.get_param_value("scope"));
    answer["issued_token_type"] = kAccessTokenType;
    Answer(response, 200, answer);
  }

  void Account(const Request& request, Response& response) {
    const std::string account = request.matches[1];
    const std::string verb = request.matches[2];
    if (verb == "generateAccessToken") return GenerateAccessToken(account, request, response);
    issued_->Disable(account, verb == "disable");
    Answer(response, 200, json::object());
  }

  // Who calls, if the call may be about other accounts.
  absl::StatusOr<std::string> Caller(const Request& request) const {
    const std::string header = request.get_header_value("Authorization");
    absl::string_view token = header;
    if (!absl::ConsumePrefix(&token, "Bearer ")) return InvalidToken("there is no bearer token");
    if (IssuedTokens::IsIssued(token)) {
      const auto issued = issued_->Find(token);
      if (!issued.ok()) return issued.status();
      if (absl::StrContains(issued->scope, kPlatformScope)) return issued->account;
    } else {
      const auto claims = verifier_->CheckSigned(token);
      if (!claims.ok()) return claims.status();
      if (claims->scope.value_or("") == kPlatformScope) return claims->issuer;
    }
    return absl::PermissionDeniedError("Request had insufficient authentication scopes.");
  }

  void GenerateAccessToken(const std::string& account, const Request& request, Response& response) {
    const auto caller = Caller(request);
    if (absl::IsPermissionDenied(caller.status())) {
      return RefuseCall(response, 403, "PERMISSION_DENIED", caller.status().message());
    }
    if (!caller.ok())
      return RefuseCall(response, 401, "UNAUTHENTICATED", caller.status().message());
    const json body = json::parse(request.body, nullptr, /*allow_exceptions=*/false);
    if (!body.is_object() || !body.contains("scope") || !body["scope"].is_array()) {
      return RefuseCall(response, 400, "INVALID_ARGUMENT", "Scope required.");
    }
    // Each of the chain needs the role on the next one.
    std::vector<std::string> chain = {*caller};
    for (const json& delegate : body.value("delegates", json::array())) {
      std::string name = delegate.is_string() ? delegate.get<std::string>() : "";
      chain.push_back(name.substr(name.rfind('/') + 1));
    }
    chain.push_back(account);
    for (std::size_t i = 0; i + 1 < chain.size(); ++i) {
      if (!impersonators_.contains({chain[i], chain[i + 1]}) || issued_->IsDisabled(chain[i + 1])) {
        return RefuseCall(response, 403, "PERMISSION_DENIED",
                          "Permission 'iam.serviceAccounts.getAccessToken' denied on resource (or "
                          "it may not exist).");
      }
    }
    std::vector<std::string> scopes;
    for (const json& scope : body["scope"]) {
      if (scope.is_string()) scopes.push_back(scope.get<std::string>());
    }
    const absl::Duration life = Lifetime(body);
    Answer(response, 200,
           {{"accessToken", issued_->Issue(account, absl::StrJoin(scopes, " "), life)},
            {"expireTime",
             absl::FormatTime("%Y-%m-%d%ET%H:%M:%SZ", absl::Now() + life, absl::UTCTimeZone())}});
  }

  // As it is asked for, but no longer than tokens hold here.
  absl::Duration Lifetime(const json& body) const {
    const auto asked = body.find("lifetime");
    absl::Duration life = life_;
    if (asked != body.end() && asked->is_string()) {
      absl::ParseDuration(asked->get<std::string>(), &life);
    }
    return std::clamp(life, absl::Seconds(1), life_);
  }

  void Metadata(const Request& request, Response& response) {
    const std::string& account = options_.metadata_account;
    absl::string_view path = request.path;
    response.set_header(kMetadataFlavor, kGoogle);
    const bool asks_properly =
        request.get_header_value(kMetadataFlavor) == kGoogle || !absl::StartsWith(path, kMetadata);
    if (account.empty() || !asks_properly || request.has_header("X-Forwarded-For")) {
      response.status = account.empty() ? 404 : 403;
      response.set_content("Missing Metadata-Flavor:Google header.", "text/html");
      return;
    }
    const std::string own = "instance/service-accounts/default/";
    if (!absl::ConsumePrefix(&path, kMetadata) || path.empty()) {
      response.set_content("computeMetadata/\n", "application/text");
    } else if (path == own + "token") {
      if (issued_->IsDisabled(account)) {
        response.status = 403;
        return;
      }
      Answer(response, 200, TokenAnswer(account, options_.metadata_scope));
    } else if (path == own + "email") {
      response.set_content(account, "application/text");
    } else if (path == own + "scopes") {
      response.set_content(absl::StrCat(options_.metadata_scope, "\n"), "application/text");
    } else if (path == "project/project-id") {
      response.set_content(project_, "application/text");
    } else if (path == "universe/universe-domain") {
      response.set_content("googleapis.com", "application/text");
    } else {
      response.status = 404;
    }
  }

  const std::string project_;
  const AuthOptions options_;
  const absl::Duration life_;
  const std::shared_ptr<BearerVerifier> verifier_;
  const std::shared_ptr<IssuedTokens> issued_;
  std::map<std::string, std::string> users_;                   // refresh token -> who
  std::map<std::string, std::vector<std::string>> providers_;  // audience -> files
  std::set<std::pair<std::string, std::string>> impersonators_;
  httplib::Server server_;
  int port_ = -1;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AuthServer>> AuthServer::Start(
    const std::string& host, const std::string& project, const AuthOptions& options,
    std::shared_ptr<BearerVerifier> verifier, std::shared_ptr<IssuedTokens> issued) {
  auto server =
      std::make_unique<AuthServerImpl>(project, options, std::move(verifier), std::move(issued));
  if (auto s = server->ReadOptions(); !s.ok()) return s;
  if (auto s = server->Listen(host); !s.ok()) return s;
  return server;
}

}  // namespace postbox::emulator
