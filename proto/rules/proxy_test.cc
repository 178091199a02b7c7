#include "proto/rules/proxy.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace postbox::pubsub {
namespace {

using Variables = std::map<std::string, std::string>;

constexpr char kServer[] = "pubsub.googleapis.com:443";

// What is found, or "error".
Proxy Found(const Variables& variables, const std::string& address = kServer) {
  const auto environment = [&variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  Proxy proxy;
  std::string error;
  if (!FindProxy(environment, address, &proxy, &error)) proxy.address = "error: " + error;
  return proxy;
}

std::string AddressOf(const std::string& value) { return Found({{"https_proxy", value}}).address; }

bool IsDirect(const std::string& list, const std::string& address) {
  return !Found({{"https_proxy", "http://proxy:3128"}, {"no_proxy", list}}, address).used();
}

TEST(ProxyTest, TheFirstVariableThatIsNotEmptyNamesIt) {
  EXPECT_FALSE(Found({}).used());
  EXPECT_FALSE(Found({{"http_proxy", "http://a:1"}, {"grpc_proxy", "http://a:1"}}).used());
  Variables all = {{"ALL_PROXY", "http://d:4"}};
  EXPECT_EQ(Found(all), (Proxy{"d:4", "", "ALL_PROXY"}));
  all["all_proxy"] = "http://c:3";
  EXPECT_EQ(Found(all), (Proxy{"c:3", "", "all_proxy"}));
  all["HTTPS_PROXY"] = "http://b:2";
  EXPECT_EQ(Found(all), (Proxy{"b:2", "", "HTTPS_PROXY"}));
  all["https_proxy"] = "";
  EXPECT_EQ(Found(all), (Proxy{"b:2", "", "HTTPS_PROXY"}));
  all["https_proxy"] = "http://a:1";
  EXPECT_EQ(Found(all), (Proxy{"a:1", "", "https_proxy"}));
}

TEST(ProxyTest, EveryFormOfAProxyIsUnderstood) {
  EXPECT_EQ(AddressOf("http://proxy:3128"), "proxy:3128");
  EXPECT_EQ(AddressOf("HTTP://proxy:3128/"), "proxy:3128");
  EXPECT_EQ(AddressOf("proxy:3128"), "proxy:3128");
  EXPECT_EQ(AddressOf("http://proxy"), "proxy:80");
  EXPECT_EQ(AddressOf("http://[::1]:3128"), "[::1]:3128");
  EXPECT_EQ(Found({{"all_proxy", "http://u%40corp:p%3Aw%2F@proxy:8080"}}),
            (Proxy{"proxy:8080", "u@corp:p:w/", "all_proxy"}));
  EXPECT_EQ(Found({{"all_proxy", "http://user:p@ss@proxy:8080"}}),
            (Proxy{"proxy:8080", "user:p@ss", "all_proxy"}));
  EXPECT_EQ(Found({{"all_proxy", "user@proxy:8080"}}).user_info, "user");
}

TEST(ProxyTest, WhatCannotBeUsedIsAnErrorWithoutThePassword) {
  for (const char* wrong : {"https://u:secret@proxy:1", "socks5://u:secret@proxy:1",
                            "http://u:secret@:1", "http://u:secret@proxy:99999",
                            "http://u:secret%0d%0aX@proxy:1", "http://u:secret%4@proxy:1",
                            "http://u:secret%zz@proxy:1", "http://u:secret@proxy:1/path"}) {
    const std::string error = AddressOf(wrong);
    EXPECT_TRUE(error.starts_with("error: https_proxy in the environment is not")) << wrong;
    EXPECT_EQ(error.find("secret"), std::string::npos) << error;
  }
  EXPECT_EQ(Found({{"https_proxy", "http://u:secret@proxy:1"}}).Name(),
            "http://proxy:1 (https_proxy)");
}

TEST(ProxyTest, TheListSaysWhatIsReachedDirectly) {
  EXPECT_TRUE(IsDirect("*", kServer));
  EXPECT_TRUE(IsDirect("localhost, .GoogleApis.com", kServer));
  EXPECT_TRUE(IsDirect("localhost googleapis.com", kServer));
  EXPECT_TRUE(IsDirect("pubsub.googleapis.com.", kServer));
  EXPECT_TRUE(IsDirect("pubsub.googleapis.com:443", kServer));
  EXPECT_TRUE(IsDirect("127.0.0.1", "127.0.0.1:8443"));
  EXPECT_TRUE(IsDirect("::1", "[::1]:8443"));
  EXPECT_TRUE(IsDirect("[::1]", "[::1]:8443"));
  EXPECT_TRUE(IsDirect("[::1]:8443", "[::1]:8443"));
  for (const char* other :
       {"", ",", "apis.com", "ubsub.googleapis.com", "pubsub.googleapis.com:444", "com.",
        "x.pubsub.googleapis.com", "10.0.0.0/8", "."}) {
    EXPECT_EQ(IsDirect(other, kServer), std::string(other) == "com.") << other;
  }
  EXPECT_FALSE(IsDirect("[::1]:8444", "[::1]:8443"));
  EXPECT_FALSE(IsDirect("127.0.0.0/8", "127.0.0.1:8443"));
}

TEST(ProxyTest, TheListInCapitalsCountsIfThereIsNoOther) {
  const std::string proxy = "http://proxy:1";
  EXPECT_FALSE(Found({{"HTTPS_PROXY", proxy}, {"NO_PROXY", "*"}}).used());
  EXPECT_FALSE(Found({{"HTTPS_PROXY", proxy}, {"NO_PROXY", "*"}, {"no_proxy", ""}}).used());
  EXPECT_TRUE(Found({{"HTTPS_PROXY", proxy}, {"NO_PROXY", "*"}, {"no_proxy", "other"}}).used());
}

TEST(ProxyTest, AProxyThatIsNotNeededMayBeWrong) {
  EXPECT_EQ(Found({{"https_proxy", "socks5://proxy:1"}, {"no_proxy", "*"}}), Proxy());
}

}  // namespace
}  // namespace postbox::pubsub
