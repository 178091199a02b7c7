#include "worker/cli/console/request_origin.h"

#include <gtest/gtest.h>

namespace postbox::cli {
namespace {

OwnAddress At(std::string_view text) {
  OwnAddress address;
  EXPECT_TRUE(ParseOwnAddress(text, &address)) << text;
  return address;
}

TEST(RequestOriginTest, AnAddressIsANumberAndSaysWhetherItIsLoopback) {
  EXPECT_TRUE(At("127.0.0.1:8090").loopback);
  EXPECT_TRUE(At("127.9.9.9:0").loopback);
  EXPECT_TRUE(At("[::1]:8090").loopback);
  EXPECT_EQ(At("localhost:8090").host, "127.0.0.1");
  EXPECT_TRUE(At(":8090").loopback);
  EXPECT_FALSE(At("0.0.0.0:8090").loopback);
  EXPECT_FALSE(At("[::]:8090").loopback);
  OwnAddress address;
  for (const char* wrong : {"", "8090", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000",
                            "::1:8090", "example.com:8090", "[::1]"}) {
    EXPECT_FALSE(ParseOwnAddress(wrong, &address)) << wrong;
  }
}

TEST(RequestOriginTest, AUrlHasAHostAndAPrefix) {
  PublicUrl url;
  EXPECT_EQ(ParsePublicUrl("https://Ops.example.com/tools/postbox/", &url), "");
  EXPECT_TRUE(url.https);
  EXPECT_EQ(url.host, "ops.example.com");
  EXPECT_EQ("https://ops.example.com" + url.prefix, "https://ops.example.com/tools/postbox");
  EXPECT_EQ(ParsePublicUrl("http://ops:8080", &url), "");
  EXPECT_EQ(url.prefix, "");
  for (const char* wrong : {"", "ops", "ftp://ops", "http://", "https:///x", "http://a b/",
                            "http://ops/a;b", "http://ops/../x", "http://ops//x", "http://u@ops"}) {
    EXPECT_NE(ParsePublicUrl(wrong, &url), "") << wrong;
  }
}

TEST(RequestOriginTest, OnlyKnownHostsAreAnswered) {
  const AllowedOrigins allowed(At("127.0.0.1:8090"), PublicUrl{true, "ops.example.com", ""});
  for (const char* host :
       {"127.0.0.1:8090", "localhost:8090", "LOCALHOST:8090", "ops.example.com"}) {
    EXPECT_TRUE(allowed.IsHost(host)) << host;
  }
  for (const char* host : {"", "localhost", "127.0.0.1", "127.0.0.1:80", "evil.example:8090",
                           "localhost:8090.evil.example", "ops.example.com:443"}) {
    EXPECT_FALSE(allowed.IsHost(host)) << host;
  }
  EXPECT_FALSE(AllowedOrigins(At("10.0.0.1:8090"), {}).IsHost("localhost:8090"));
}

TEST(RequestOriginTest, ARequestOfAnotherSiteIsNotOwn) {
  const AllowedOrigins allowed(At("127.0.0.1:8090"), PublicUrl{true, "ops.example.com", ""});
  EXPECT_TRUE(allowed.IsOwn("", "")) << "no browser";
  EXPECT_TRUE(allowed.IsOwn("http://127.0.0.1:8090", "same-origin"));
  EXPECT_TRUE(allowed.IsOwn("https://ops.example.com", "same-origin"));
  EXPECT_TRUE(allowed.IsOwn("", "none"));
  EXPECT_FALSE(allowed.IsOwn("http://ops.example.com", "")) << "another scheme";
  EXPECT_FALSE(allowed.IsOwn("https://evil.example", ""));
  EXPECT_FALSE(allowed.IsOwn("null", "")) << "a sandboxed frame";
  EXPECT_FALSE(allowed.IsOwn("", "cross-site"));
  EXPECT_FALSE(allowed.IsOwn("", "same-site"));
}

}  // namespace
}  // namespace postbox::cli
