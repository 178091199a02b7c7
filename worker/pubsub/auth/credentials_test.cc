#include "worker/pubsub/auth/credentials.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "proto/rules/url_encode.h"

namespace postbox::pubsub {
namespace {

constexpr char kVariable[] = "GOOGLE_APPLICATION_CREDENTIALS";

class CredentialsTest : public testing::Test {
 protected:
  CredentialsTest() {
    char name[] = "/tmp/postbox-credentials-XXXXXX";
    directory_ = mkdtemp(name);
    file_ = directory_ + "/key.json";
    const char* old = getenv(kVariable);
    if (old != nullptr) saved_ = old;
    setenv(kVariable, file_.c_str(), 1);
  }
  ~CredentialsTest() override {
    saved_.empty() ? unsetenv(kVariable) : setenv(kVariable, saved_.c_str(), 1);
    unlink(file_.c_str());
    rmdir(directory_.c_str());
  }

  void Write(const std::string& text) { std::ofstream(file_) << text; }
  std::string ErrorOf() {
    std::string error;
    EXPECT_FALSE(MakeCredentials({"pubsub.googleapis.com:443", false}, {}, &error));
    return error;
  }

  std::string directory_;
  std::string file_;
  std::string saved_;
};

TEST_F(CredentialsTest, APlainTextEndpointNeedsNone) {
  std::string error;
  const auto credentials = MakeCredentials({"127.0.0.1:8085", true}, {}, &error);
  ASSERT_TRUE(credentials);
  EXPECT_NE(credentials->channel, nullptr);
  EXPECT_EQ(credentials->quota_project, "");
}

TEST_F(CredentialsTest, ANamedFileThatCannotBeUsedIsAnErrorThatNamesIt) {
  EXPECT_EQ(
      ErrorOf(),
      "the file \"" + file_ +
          "\" named by GOOGLE_APPLICATION_CREDENTIALS cannot be read: No such file or directory");
  Write("no json");
  EXPECT_NE(ErrorOf().find("is not a JSON object"), std::string::npos);
  Write(R"({"type": "gdch_service_account"})");
  EXPECT_NE(ErrorOf().find("\"gdch_service_account\"; service_account,"), std::string::npos);
}

TEST_F(CredentialsTest, WhatIsNoFileOfCredentialsIsAnErrorAndNotReadToItsEnd) {
  setenv(kVariable, directory_.c_str(), 1);
  EXPECT_NE(ErrorOf().find("cannot be read: Is a directory"), std::string::npos);
  setenv(kVariable, "/dev/zero", 1);
  EXPECT_NE(ErrorOf().find("is longer than 1048576 bytes"), std::string::npos);
  setenv(kVariable, file_.c_str(), 1);
  Write(R"({"type": "a\nb)" + std::string(500, 'x') + "\"}");
  EXPECT_NE(ErrorOf().find("type \"a b" + std::string(61, 'x') + "...\";"), std::string::npos);
}

TEST_F(CredentialsTest, UserCredentialsBringTheirQuotaProject) {
  Write(R"({"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "t",
            "quota_project_id": "who-pays"})");
  std::string error;
  const auto credentials = MakeCredentials({"pubsub.googleapis.com:443", false}, {}, &error);
  ASSERT_TRUE(credentials) << error;
  EXPECT_EQ(credentials->quota_project, "who-pays");
}

TEST_F(CredentialsTest, AQuotaProjectThatCannotBeAHeaderIsAnError) {
  for (const char* project : {"two\\nlines", "caf\xC3\xA9", "\\u0000"}) {
    Write(R"({"type": "authorized_user", "client_id": "i", "client_secret": "s",
              "refresh_token": "t", "quota_project_id": ")" +
          std::string(project) + "\"}");
    EXPECT_NE(ErrorOf().find("has a quota_project_id that cannot be used"), std::string::npos);
  }
}

TEST(AudienceTest, TheEndpointsOfGooglesRegionsAreOneAudience) {
  EXPECT_EQ(AudienceOf({"us-east1-pubsub.googleapis.com:443", false}),
            "https://pubsub.googleapis.com/");
  EXPECT_EQ(AudienceOf({"localhost:8443", false}), "https://localhost/");
}

TEST(UrlEncodeTest, RoutingHeadersAreUrlEncoded) {
  EXPECT_EQ(UrlEncode("projects/p/topics/a.b-c_d~e"), "projects%2Fp%2Ftopics%2Fa.b-c_d~e");
  EXPECT_EQ(UrlEncode("a+b%c\xC3\xA9 "), "a%2Bb%25c%C3%A9%20");
}

}  // namespace
}  // namespace postbox::pubsub
