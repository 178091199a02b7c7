#include "worker/emulator/auth/issued_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/emulator/auth/bearer.h"

namespace postbox::emulator {
namespace {

using testing::HasSubstr;

constexpr char kMachine[] = "sa@p.iam.gserviceaccount.com";
constexpr char kScopes[] = "openid https://www.googleapis.com/auth/pubsub";

class IssuedTokensTest : public testing::Test {
 protected:
  std::string Outcome(const std::string& token) {
    const BearerVerifier verifier([this] { return now_; }, {}, {"localhost"}, tokens_);
    const auto caller = verifier.Verify("Bearer " + token);
    return caller.ok() ? *caller : std::string(caller.status().ToString());
  }

  absl::Time now_ = absl::FromUnixSeconds(1'795'000'000);
  const std::shared_ptr<IssuedTokens> tokens_ =
      std::make_shared<IssuedTokens>([this] { return now_; });
};

TEST_F(IssuedTokensTest, ATokenIsTakenUntilItEnds) {
  const std::string token = tokens_->Issue(kMachine, kScopes, absl::Seconds(10));
  EXPECT_EQ(Outcome(token), kMachine);
  now_ += absl::Seconds(9);
  EXPECT_EQ(Outcome(token), kMachine);
  now_ += absl::Seconds(1);
  EXPECT_THAT(Outcome(token), HasSubstr("UNAUTHENTICATED"));
  EXPECT_THAT(Outcome(token), HasSubstr("has expired at"));
}

TEST_F(IssuedTokensTest, ATokenThatWasNotIssuedOrWasRevokedIsNotTaken) {
  const std::string token = tokens_->Issue(kMachine, kScopes, absl::Seconds(10));
  EXPECT_THAT(Outcome(token + "x"), HasSubstr("is not known, or was revoked"));
  tokens_->Revoke(token);
  EXPECT_THAT(Outcome(token), HasSubstr("is not known, or was revoked"));
}

TEST_F(IssuedTokensTest, NothingIsTakenFromADisabledAccount) {
  const std::string token = tokens_->Issue(kMachine, kScopes, absl::Seconds(10));
  tokens_->Disable(kMachine, true);
  EXPECT_THAT(Outcome(token), HasSubstr("is disabled"));
  tokens_->Disable(kMachine, false);
  EXPECT_EQ(Outcome(token), kMachine);
}

TEST_F(IssuedTokensTest, ATokenForAnotherServiceIsNotEnough) {
  const std::string token =
      tokens_->Issue(kMachine, "https://www.googleapis.com/auth/devstorage", absl::Seconds(10));
  EXPECT_THAT(Outcome(token), HasSubstr("PERMISSION_DENIED"));
  EXPECT_THAT(Outcome(token), HasSubstr("insufficient authentication scopes"));
}

}  // namespace
}  // namespace postbox::emulator
