#include "worker/emulator/auth/bearer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace postbox::emulator {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr char kAccount[] = "worker@project.iam.gserviceaccount.com";
const absl::Time kNow = absl::FromUnixSeconds(1'795'000'000);

class BearerTest : public testing::Test {
 protected:
  BearerTest() {
    char name[] = "/tmp/postbox-bearer-XXXXXX";
    directory_ = mkdtemp(name);
    WriteKey(key_);
  }
  ~BearerTest() override {
    unlink(File().c_str());
    rmdir(directory_.c_str());
  }

  std::string File() const { return directory_ + "/public.pem"; }
  void WriteKey(EVP_PKEY* key) {
    FILE* file = fopen(File().c_str(), "w");
    PEM_write_PUBKEY(file, key);
    fclose(file);
  }

  static json Claims() {
    return {{"iss", kAccount},
            {"sub", kAccount},
            {"aud", "https://localhost:8085/google.pubsub.v1.Publisher"},
            {"iat", absl::ToUnixSeconds(kNow)},
            {"exp", absl::ToUnixSeconds(kNow + absl::Hours(1))}};
  }
  static std::string Encode(const std::string& text) { return absl::WebSafeBase64Escape(text); }
  static std::string Sign(const json& claims, EVP_PKEY* key, const char* algorithm = "RS256") {
    const std::string text =
        Encode(json{{"alg", algorithm}, {"typ", "JWT"}}.dump()) + "." + Encode(claims.dump());
    EVP_MD_CTX* digest = EVP_MD_CTX_new();
    EVP_DigestSignInit(digest, nullptr, EVP_sha256(), nullptr, key);
    std::string signature(1024, 0);
    size_t size = signature.size();
    EVP_DigestSign(digest, reinterpret_cast<unsigned char*>(signature.data()), &size,
                   reinterpret_cast<const unsigned char*>(text.data()), text.size());
    EVP_MD_CTX_free(digest);
    signature.resize(size);
    return "Bearer " + text + "." + Encode(signature);
  }
  std::string Outcome(const std::string& authorization) {
    BearerVerifier verifier([] { return kNow; }, {{kAccount, File()}},
                            {"localhost", "pubsub.googleapis.com"});
    const auto caller = verifier.Verify(authorization);
    return caller.ok() ? *caller : std::string(caller.status().ToString());
  }
  // The outcome with one claim changed, or without it.
  std::string With(const char* name, const json& value) {
    json claims = Claims();
    claims[name] = value;
    return Outcome(Sign(claims, key_));
  }

  std::string directory_;
  // Made once: it takes a while.
  static inline EVP_PKEY* const key_ = EVP_RSA_gen(2048);
  static inline EVP_PKEY* const other_ = EVP_RSA_gen(2048);
};

TEST_F(BearerTest, ATokenOfAKnownAccountForThisServiceIsTaken) {
  EXPECT_EQ(Outcome(Sign(Claims(), key_)), kAccount);
  EXPECT_EQ(With("aud", "https://localhost:8085/"), kAccount);
  EXPECT_EQ(With("aud", "https://pubsub.googleapis.com/google.pubsub.v1.Subscriber"), kAccount);
}

TEST_F(BearerTest, ATokenThatAnotherKeyHasSignedIsRefused) {
  EXPECT_THAT(Outcome(Sign(Claims(), other_)), HasSubstr("UNAUTHENTICATED"));
  EXPECT_THAT(Outcome(Sign(Claims(), other_)), HasSubstr("has signed the token"));
  EXPECT_THAT(With("iss", "somebody@else"), HasSubstr("\"somebody@else\" has no key here"));
}

TEST_F(BearerTest, AKeyIsRevokedWhenItsFileIsTakenAwayAndGivenBackWithIt) {
  unlink(File().c_str());
  EXPECT_THAT(Outcome(Sign(Claims(), key_)), HasSubstr("has no key here"));
  WriteKey(other_);
  EXPECT_THAT(Outcome(Sign(Claims(), key_)), HasSubstr("has signed the token"));
  WriteKey(key_);
  EXPECT_EQ(Outcome(Sign(Claims(), key_)), kAccount);
}

TEST_F(BearerTest, ADirectoryIsNoKey) {
  unlink(File().c_str());
  mkdir(File().c_str(), 0700);
  EXPECT_THAT(Outcome(Sign(Claims(), key_)), HasSubstr("has no key here"));
  rmdir(File().c_str());
}

TEST_F(BearerTest, ATokenForAnotherServiceIsRefused) {
  for (const char* audience :
       {"https://storage.googleapis.com/", "localhost:8085", "https://localhost:8085",
        "https://localhost:8085x/", "https://localhostess/",
        "https://localhost:8085/google.storage.v1.Storage"}) {
    EXPECT_THAT(With("aud", audience), HasSubstr("which is not this service")) << audience;
  }
}

TEST_F(BearerTest, AScopeHasToIncludePubSub) {
  json claims = Claims();
  claims.erase("aud");
  EXPECT_THAT(Outcome(Sign(claims, key_)), HasSubstr("PERMISSION_DENIED"));
  claims["scope"] = "https://www.googleapis.com/auth/devstorage.read_only";
  EXPECT_THAT(Outcome(Sign(claims, key_)), HasSubstr("insufficient authentication scopes"));
  claims["scope"] = "openid https://www.googleapis.com/auth/pubsub";
  EXPECT_EQ(Outcome(Sign(claims, key_)), kAccount);
}

TEST_F(BearerTest, ClocksMayDifferByFiveMinutes) {
  const auto issued_at = [&](absl::Duration ago) {
    json claims = Claims();
    claims["iat"] = absl::ToUnixSeconds(kNow - ago);
    claims["exp"] = absl::ToUnixSeconds(kNow - ago + absl::Hours(1));
    return Outcome(Sign(claims, key_));
  };
  EXPECT_EQ(issued_at(absl::Minutes(64)), kAccount);
  EXPECT_THAT(issued_at(absl::Minutes(66)), HasSubstr("has expired at"));
  EXPECT_EQ(issued_at(absl::Minutes(-4)), kAccount);
  EXPECT_THAT(issued_at(absl::Minutes(-10)), HasSubstr("compare the clocks"));
  EXPECT_THAT(With("exp", absl::ToUnixSeconds(kNow + absl::Hours(2))), HasSubstr("an hour"));
  EXPECT_THAT(With("iat", "now"), HasSubstr("no iat"));
}

TEST_F(BearerTest, WhatIsNoTokenIsRefused) {
  for (const char* text : {"", "Bearer ", "Bearer a.b.c", "Bearer a.b", "Basic YTpi", "Bearer ..",
                           "Bearer bnVsbA.bnVsbA.bnVsbA"}) {
    EXPECT_THAT(Outcome(text), HasSubstr("UNAUTHENTICATED")) << text;
  }
  EXPECT_THAT(Outcome(Sign(Claims(), key_, "none")), HasSubstr("not signed with RS256"));
  EXPECT_THAT(Outcome(Sign(Claims(), key_, "HS256")), HasSubstr("not signed with RS256"));
}

TEST(TrustedAccountTest, ItIsAnEmailAndAFile) {
  const auto account = ParseTrustedAccount("a@b=/x=y");
  ASSERT_TRUE(account.ok());
  EXPECT_EQ(account->email, "a@b");
  EXPECT_EQ(account->key_file, "/x=y");
  for (const char* text : {"", "a@b", "=file", "a@b="})
    EXPECT_FALSE(ParseTrustedAccount(text).ok());
}

}  // namespace
}  // namespace postbox::emulator
