#include "worker/pubsub/auth/token_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "proto/rules/error_class.h"
#include "worker/pubsub/auth/fake_token_server.h"
#include "worker/pubsub/auth/jwt.h"
#include "worker/pubsub/auth/token_request.h"

namespace postbox::pubsub {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Answer = FakeTokenServer::Answer;

constexpr char kAudience[] = "https://pubsub.googleapis.com/";
constexpr seconds kLong{30};

Answer Token(const std::string& token, int life = 3600) {
  return {json{{"access_token", token}, {"expires_in", life}, {"token_type", "Bearer"}}.dump()};
}

std::string NewPrivateKey() {
  EVP_PKEY* key = EVP_RSA_gen(2048);
  BIO* text = BIO_new(BIO_s_mem());
  PEM_write_bio_PrivateKey(text, key, nullptr, nullptr, 0, nullptr, nullptr);
  char* data = nullptr;
  const long size = BIO_get_mem_data(text, &data);
  std::string pem(data, static_cast<std::size_t>(size));
  BIO_free(text);
  EVP_PKEY_free(key);
  return pem;
}

json ServiceAccount(const std::string& email) {
  static const std::string& key = *new std::string(NewPrivateKey());
  return {{"type", "service_account"},
          {"client_email", email},
          {"private_key", key},
          {"private_key_id", "k1"}};
}

json User(const FakeTokenServer& server) {
  return {{"type", "authorized_user"},        {"client_id", "id"},
          {"client_secret", "GOCSPX-secret"}, {"refresh_token", "1//refresh"},
          {"account", "ann@example.com"},     {"token_uri", server.url("/token")}};
}

json External(const FakeTokenServer& server, const json& source) {
  return {{"type", "external_account"},
          {"audience", "//iam.googleapis.com/pools/p"},
          {"subject_token_type", "urn:ietf:params:oauth:token-type:jwt"},
          {"token_url", server.url("/v1/token")},
          {"credential_source", source}};
}

class TokenSourceTest : public testing::Test {
 protected:
  TokenSourceTest() {
    char name[] = "/tmp/postbox-tokens-XXXXXX";
    directory_ = mkdtemp(name);
  }
  ~TokenSourceTest() override {
    source_.reset();
    unsetenv("GCE_METADATA_HOST");
    unlink(File().c_str());
    rmdir(directory_.c_str());
  }

  std::string File() const { return directory_ + "/file"; }
  void Write(const std::string& text) { std::ofstream(File()) << text; }

  void Start(const CredentialSpec& spec) {
    std::string error;
    std::string project;
    source_ = TokenSource::Start(spec, kAudience, &project, &error, [this] {
      return std::chrono::system_clock::now() + seconds(passed_);
    });
    ASSERT_NE(source_, nullptr) << error;
  }
  void Start(const json& credentials) { Start(CredentialSpec{.json = credentials.dump()}); }
  static std::string StartError(const json& credentials) {
    std::string error;
    std::string project;
    EXPECT_EQ(TokenSource::Start({.json = credentials.dump()}, kAudience, &project, &error),
              nullptr);
    return error;
  }
  std::string Header() {
    const Authorization answer = source_->Wait(kLong);
    EXPECT_EQ(answer.error, "");
    return answer.header;
  }

  std::string directory_;
  std::atomic<int> passed_ = 0;  // seconds that the clock has been put forward
  std::unique_ptr<TokenSource> source_;
};

TEST_F(TokenSourceTest, AServiceAccountSignsItsTokensForTheService) {
  Start(ServiceAccount("sa@p.iam.gserviceaccount.com"));
  const std::string header = Header();
  EXPECT_EQ(ClaimOf(header, "aud"), kAudience);
  EXPECT_EQ(ClaimOf(header, "iss"), "sa@p.iam.gserviceaccount.com");
  const CredentialState state = source_->State();
  EXPECT_EQ(state.kind, "service_account");
  EXPECT_EQ(state.identity, "sa@p.iam.gserviceaccount.com");
  EXPECT_GT(*state.valid_until, std::chrono::system_clock::now() + seconds(3500));
  EXPECT_EQ(state.last_error, "");
}

TEST_F(TokenSourceTest, AUserExchangesARefreshToken) {
  FakeTokenServer server([](const std::string&) { return Token("t1"); });
  Start(User(server));
  EXPECT_EQ(Header(), "Bearer t1");
  EXPECT_THAT(server.requests().at(0),
              AllOf(HasSubstr("POST /token "), HasSubstr("grant_type=refresh_token"),
                    HasSubstr("refresh_token=1%2F%2Frefresh"), HasSubstr("client_id=id")));
  EXPECT_EQ(source_->State().identity, "ann@example.com");
}

TEST_F(TokenSourceTest, AnExternalAccountExchangesTheTokenInAFile) {
  FakeTokenServer server([](const std::string&) { return Token("t2"); });
  Write("subject-1\n");
  Start(External(server, {{"file", File()}}));
  EXPECT_EQ(Header(), "Bearer t2");
  EXPECT_THAT(server.requests().at(0),
              AllOf(HasSubstr("POST /v1/token "), HasSubstr("&subject_token=subject-1&"),
                    HasSubstr("audience=%2F%2Fiam.googleapis.com%2Fpools%2Fp"),
                    HasSubstr("scope=https%3A%2F%2Fwww.googleapis.com%2Fauth%2Fpubsub&")));
  EXPECT_EQ(source_->State().identity, "//iam.googleapis.com/pools/p");
}

TEST_F(TokenSourceTest, AnExternalAccountTakesItsTokenFromAUrlAndImpersonates) {
  FakeTokenServer server([](const std::string& request) -> Answer {
    if (request.starts_with("GET /subject ")) return {R"({"id": "subject-2"})"};
    if (request.starts_with("POST /v1/token ")) return Token("federated");
    return {R"({"accessToken": "t3", "expireTime": "2999-01-01T00:00:00Z"})"};
  });
  json account =
      External(server, {{"url", server.url("/subject")},
                        {"headers", {{"X-Mine", "yes"}}},
                        {"format", {{"type", "json"}, {"subject_token_field_name", "id"}}}});
  account["service_account_impersonation_url"] =
      server.url("/v1/projects/-/serviceAccounts/sa@p:generateAccessToken");
  account["service_account_impersonation"] = {{"token_lifetime_seconds", 1200}};
  Start(account);
  EXPECT_EQ(Header(), "Bearer t3");
  EXPECT_EQ(source_->State().identity, "sa@p");
  EXPECT_THAT(server.requests().at(0), HasSubstr("X-Mine: yes"));
  EXPECT_THAT(server.requests().at(1),
              AllOf(HasSubstr("&subject_token=subject-2&"), HasSubstr("auth%2Fcloud-platform&")));
  EXPECT_THAT(
      server.requests().at(2),
      AllOf(HasSubstr("Authorization: Bearer federated"), HasSubstr(R"("lifetime":"1200s")"),
            HasSubstr(R"("scope":["https://www.googleapis.com/auth/pubsub"])")));
  // However long a server says that a token holds, it is asked for again within half a day.
  EXPECT_LT(*source_->State().valid_until,
            std::chrono::system_clock::now() + std::chrono::hours(13));
}

TEST_F(TokenSourceTest, AnotherAccountIsImpersonatedThroughItsDelegates) {
  FakeTokenServer server([](const std::string&) -> Answer {
    return {R"({"accessToken": "t4", "expireTime": "2999-01-01T00:00:00Z"})"};
  });
  Start({{"type", "impersonated_service_account"},
         {"service_account_impersonation_url",
          server.url("/v1/projects/-/serviceAccounts/target@p:generateAccessToken")},
         {"delegates", {"projects/-/serviceAccounts/between@p"}},
         {"source_credentials", ServiceAccount("source@p")}});
  EXPECT_EQ(Header(), "Bearer t4");
  EXPECT_EQ(source_->State().identity, "target@p");
  const std::string request = server.requests().at(0);
  EXPECT_THAT(request, HasSubstr(R"("delegates":["projects/-/serviceAccounts/between@p"])"));
  const std::size_t token = request.find("Bearer ");
  EXPECT_EQ(ClaimOf(request.substr(token, request.find("\r\n", token) - token), "scope"),
            "https://www.googleapis.com/auth/cloud-platform");
}

TEST_F(TokenSourceTest, TheMetadataServerIsAskedForTheAccountOfTheMachine) {
  FakeTokenServer server([](const std::string& request) -> Answer {
    if (request.find("Metadata-Flavor: Google") == std::string::npos) return {"", 403};
    if (request.find("default/email ") != std::string::npos) return {"machine@p\n"};
    return Token("t5");
  });
  setenv("GCE_METADATA_HOST", server.host().c_str(), 1);
  Start(CredentialSpec{.metadata_server = true});
  EXPECT_EQ(Header(), "Bearer t5");
  EXPECT_EQ(source_->State().kind, "metadata_server");
  EXPECT_EQ(source_->State().identity, "machine@p");
  EXPECT_THAT(server.requests().at(0),
              HasSubstr("GET /computeMetadata/v1/instance/service-accounts/default/token?scopes="));
}

TEST_F(TokenSourceTest, AFileOfTheUserThatIsBeingWrittenIsNotReplacedByTheMachine) {
  FakeTokenServer server([](const std::string&) -> Answer {
    return {"computeMetadata/\n", 200, "metadata-flavor: Google\r\n"};
  });
  setenv("GCE_METADATA_HOST", server.host().c_str(), 1);
  unsetenv("GOOGLE_APPLICATION_CREDENTIALS");
  const char* const home = getenv("HOME");
  const std::string before = home == nullptr ? "" : home;
  setenv("HOME", directory_.c_str(), 1);
  std::string error;
  std::string project;
  EXPECT_NE(TokenSource::Start({}, kAudience, &project, &error), nullptr) << "there is no file";
  const auto folder = std::filesystem::path(directory_) / ".config/gcloud";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "application_default_credentials.json") << R"({"type": "authoriz)";
  EXPECT_EQ(TokenSource::Start({}, kAudience, &project, &error), nullptr);
  EXPECT_THAT(error, HasSubstr("application_default_credentials.json\" is not a JSON object"));
  std::filesystem::remove_all(std::filesystem::path(directory_) / ".config");
  setenv("HOME", before.c_str(), 1);
}

TEST_F(TokenSourceTest, UncheckedCredentialsAreLookedForAgainUntilTheyCanBeUsed) {
  FakeTokenServer server([](const std::string&) { return Token("t6"); });
  const std::string path = directory_ + "/late.json";
  std::string error;
  auto source = TokenSource::StartUnchecked(CredentialSpec{.file = path}, kAudience, &error);
  ASSERT_NE(source, nullptr) << error;
  Authorization answer = source->Wait(kLong);
  EXPECT_EQ(answer.code, kUnauthenticated);
  EXPECT_THAT(answer.error, HasSubstr(path));
  json user = User(server);
  user["quota_project_id"] = "charged-project";
  std::ofstream(path) << user;
  const auto end = std::chrono::steady_clock::now() + kLong;
  while (answer.header.empty() && std::chrono::steady_clock::now() < end) {
    answer = source->Wait(kLong);
  }
  EXPECT_EQ(answer.header, "Bearer t6");
  EXPECT_EQ(answer.quota_project, "charged-project");
  EXPECT_EQ(source->State().identity, "ann@example.com");
}

TEST_F(TokenSourceTest, AMetadataServerIsKnownByItsHeader) {
  FakeTokenServer server([](const std::string&) -> Answer {
    return {"computeMetadata/\n", 200, "metadata-flavor: Google\r\n"};
  });
  setenv("GCE_METADATA_HOST", server.host().c_str(), 1);
  HttpClient http;
  EXPECT_TRUE(FindsMetadataServer(&http));
  FakeTokenServer other([](const std::string&) -> Answer { return {"<html>"}; });
  setenv("GCE_METADATA_HOST", other.host().c_str(), 1);
  EXPECT_FALSE(FindsMetadataServer(&http));
}

TEST(WithoutSecretsTest, ASecretMayLookLikeWhatStandsForIt) {
  EXPECT_EQ(WithoutSecrets("a [...] b", {"[...]"}), "a [...] b");
  EXPECT_EQ(WithoutSecrets("pass...]", {"...]", "pass"}), "[...][...]");
}

TEST(WithoutSecretsTest, ASecretMayBeginLikeAnotherOne) {
  EXPECT_EQ(WithoutSecrets("it is password", {"pass", "password"}), "it is [...]");
}

TEST_F(TokenSourceTest, ARefusalIsQuotedWithoutSecrets) {
  FakeTokenServer server([](const std::string&) -> Answer {
    return {R"({"error": "invalid_grant", "error_description":
                "GOCSPX-secret of 1//refresh\nya29.a0AfH6SMBxyz0123456789abcdef is expired"})",
            400};
  });
  Start(User(server));
  const Authorization answer = source_->Wait(kLong);
  EXPECT_EQ(answer.code, kUnauthenticated);
  EXPECT_EQ(answer.error,
            "no access token: 127.0.0.1: status 400: invalid_grant: [...] of [...] ya29.[...] is "
            "expired");
  EXPECT_THAT(source_->State().last_error, HasSubstr("invalid_grant"));
}

TEST_F(TokenSourceTest, WhatIsNoRefusalIsNotQuotedAndIsTriedAgain) {
  std::atomic<int> asked = 0;
  FakeTokenServer server([&](const std::string&) -> Answer {
    if (++asked == 1) return {"<html>GOCSPX-secret</html>", 503};
    return Token("t6");
  });
  Start(User(server));
  const Authorization answer = source_->Wait(kLong);
  EXPECT_EQ(answer.code, kUnavailable);
  EXPECT_EQ(answer.error, "no access token: 127.0.0.1: status 503");
  std::string header;
  for (const auto end = std::chrono::steady_clock::now() + kLong;
       header.empty() && std::chrono::steady_clock::now() < end;) {
    header = source_->Wait(milliseconds(100)).header;
  }
  EXPECT_EQ(header, "Bearer t6");
  EXPECT_EQ(source_->State().last_error, "");
}

TEST_F(TokenSourceTest, AnAnswerThatIsNoTokenIsAnError) {
  for (const char* body : {"no json", "[]", "{}", R"({"access_token": 1})",
                           R"({"access_token": "a\nb", "expires_in": 60})",
                           R"({"access_token": "t", "expires_in": "x"})",
                           R"({"access_token": "t", "expires_in": -5})"}) {
    FakeTokenServer server([body](const std::string&) -> Answer { return {body}; });
    Start(User(server));
    EXPECT_THAT(source_->Wait(kLong).error, HasSubstr("the response contains no token")) << body;
    source_.reset();
  }
}

TEST_F(TokenSourceTest, HowLongATokenLivesMayBeAnyNumberOrATextOfOne) {
  for (const char* life : {"3600.5", R"("3600")", "1e3", "1e300"}) {
    const std::string body = std::string(R"({"access_token": "t", "expires_in": )") + life + "}";
    FakeTokenServer server([&](const std::string&) -> Answer { return {body}; });
    Start(User(server));
    EXPECT_EQ(source_->Wait(kLong).header, "Bearer t") << body;
    source_.reset();
  }
}

TEST_F(TokenSourceTest, ATokenOfTheMetadataServerDoesNotWaitLongForItsName) {
  FakeTokenServer server([](const std::string& request) -> Answer {
    if (request.find("/email") == std::string::npos) return Token("t");
    return {.body = "", .keep_silent = true};
  });
  setenv("GCE_METADATA_HOST", server.host().c_str(), 1);
  Start(CredentialSpec{.metadata_server = true});
  EXPECT_EQ(source_->Wait(TokenRequest::kTimeout - seconds(2)).header, "Bearer t");
}

TEST_F(TokenSourceTest, NeitherARedirectNorAnEndlessAnswerIsFollowed) {
  FakeTokenServer other([](const std::string&) { return Token("stolen"); });
  FakeTokenServer redirects([&](const std::string&) -> Answer {
    return {"", 307, "Location: " + other.url("/") + "\r\n"};
  });
  Start(User(redirects));
  EXPECT_THAT(source_->Wait(kLong).error, HasSubstr("status 307"));
  EXPECT_TRUE(other.requests().empty());
  FakeTokenServer endless([](const std::string&) -> Answer { return {std::string(3 << 20, 'x')}; });
  Start(User(endless));
  EXPECT_THAT(source_->Wait(kLong).error, HasSubstr("longer than 1048576 bytes"));
}

TEST_F(TokenSourceTest, AProxySeesNothingOfAPlainRequest) {
  FakeTokenServer proxy([](const std::string&) { return Token("stolen"); });
  FakeTokenServer server([](const std::string&) { return Token("t7"); });
  setenv("http_proxy", proxy.url("/").c_str(), 1);
  Start(User(server));
  EXPECT_EQ(Header(), "Bearer t7");
  unsetenv("http_proxy");
  EXPECT_TRUE(proxy.requests().empty());
}

TEST_F(TokenSourceTest, ATokenThatHasEndedAlreadyIsAnError) {
  FakeTokenServer server([](const std::string& request) -> Answer {
    if (request.starts_with("POST /token ")) return Token("source");
    return {R"({"accessToken": "t", "expireTime": "2020-01-01T00:00:00Z"})"};
  });
  Start({{"type", "impersonated_service_account"},
         {"service_account_impersonation_url",
          server.url("/v1/projects/-/serviceAccounts/target@p:generateAccessToken")},
         {"source_credentials", User(server)}});
  const Authorization answer = source_->Wait(kLong);
  EXPECT_EQ(answer.code, kUnauthenticated);
  EXPECT_THAT(answer.error, HasSubstr("the token has already expired"));
}

TEST_F(TokenSourceTest, ATokenIsReplacedBeforeItEnds) {
  std::atomic<int> count = 0;
  FakeTokenServer server(
      [&](const std::string&) { return Token("t" + std::to_string(++count), 1000); });
  Start(User(server));
  EXPECT_EQ(Header(), "Bearer t1");
  passed_ = 850;
  EXPECT_EQ(Header(), "Bearer t1");
  EXPECT_EQ(count, 1);
  // A tenth of its life is left. In all that time there is a token.
  passed_ = 900;
  std::string header;
  for (const auto end = std::chrono::steady_clock::now() + kLong;
       header != "Bearer t2" && std::chrono::steady_clock::now() < end;) {
    header = source_->Get().header;
    ASSERT_NE(header, "");
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(header, "Bearer t2");
}

TEST_F(TokenSourceTest, ATokenThatHasEndedIsNotUsed) {
  std::atomic<bool> open = true;
  FakeTokenServer server([&](const std::string&) -> Answer {
    if (open) return Token("t1", 1000);
    return {.body = "", .keep_silent = true};
  });
  Start(User(server));
  EXPECT_EQ(Header(), "Bearer t1");
  open = false;
  passed_ = 950;
  EXPECT_EQ(source_->Get().header, "Bearer t1");
  passed_ = 1001;
  EXPECT_EQ(source_->Get().header, "");
  source_.reset();
}

TEST_F(TokenSourceTest, ATokenThatIsRefusedIsThrownAwayAndTheFileReadAgain) {
  Write(ServiceAccount("old@p").dump());
  Start(CredentialSpec{.file = File()});
  const std::string old = Header();
  Write(ServiceAccount("new@p").dump());
  EXPECT_EQ(Header(), old);
  EXPECT_TRUE(source_->Reject(old, "UNAUTHENTICATED: expired"));
  EXPECT_EQ(source_->State().last_error, "UNAUTHENTICATED: expired");
  const std::string fresh = Header();
  EXPECT_EQ(ClaimOf(fresh, "iss"), "new@p");
  // Calls that were under way with the old token are repeated with the fresh one.
  EXPECT_TRUE(source_->Reject(old, "UNAUTHENTICATED: expired"));
  EXPECT_EQ(Header(), fresh);
  // A fresh token that is refused as well is not thrown away at once.
  EXPECT_FALSE(source_->Reject(fresh, "UNAUTHENTICATED: again"));
  EXPECT_EQ(Header(), fresh);
  source_->Accepted();
  EXPECT_EQ(source_->State().last_error, "");
  EXPECT_EQ(source_->State().identity, "new@p");
}

TEST_F(TokenSourceTest, AServerThatDoesNotAnswerHoldsUpNobody) {
  FakeTokenServer server(
      [](const std::string&) { return Answer{.body = "", .keep_silent = true}; });
  Start(User(server));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(source_->Get().header, "");
  EXPECT_THAT(source_->Wait(milliseconds(200)).error, HasSubstr("no answer in time"));
  source_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(5));
}

TEST_F(TokenSourceTest, SecretsGoToNobodyInPlainText) {
  FakeTokenServer server([](const std::string&) { return Token("t"); });
  json user = User(server);
  for (const char* url : {"http://example.com/token", "ftp://localhost/token", "localhost/token",
                          "http://localhost@example.com/", "https://user:pass@example.com/", "x"}) {
    user["token_uri"] = url;
    EXPECT_THAT(StartError(user),
                AllOf(HasSubstr("has a token_uri that cannot be used"), Not(HasSubstr("secret"))))
        << url;
  }
}

TEST_F(TokenSourceTest, WhatIsMissingOrNotSupportedIsNamed) {
  FakeTokenServer server([](const std::string&) { return Token("t"); });
  json user = User(server);
  user.erase("refresh_token");
  EXPECT_EQ(StartError(user), "the credential lacks the member refresh_token");
  EXPECT_THAT(StartError(External(server, {{"environment_id", "aws1"}})),
              HasSubstr("for AWS or an executable; file and url are supported"));
  EXPECT_THAT(StartError(External(server, json::object())), HasSubstr("without a file or a url"));
  EXPECT_THAT(
      StartError(External(server, {{"url", server.url("/")}, {"headers", {{"a", "b\nc: d"}}}})),
      HasSubstr("that cannot be sent as a header"));
  EXPECT_THAT(StartError({{"type", "impersonated_service_account"},
                          {"service_account_impersonation_url", server.url("/x")},
                          {"source_credentials", user}}),
              HasSubstr("does not end with an account and :generateAccessToken"));
  Start({{"type", "service_account"}, {"client_email", "e"}, {"private_key", "none"}});
  EXPECT_EQ(source_->Wait(kLong).error,
            "no access token: the private_key is not an RSA key, or cannot be used");
}

}  // namespace
}  // namespace postbox::pubsub
