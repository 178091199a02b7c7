#include "proto/rules/endpoint.h"

#include <gtest/gtest.h>

#include <string>

namespace postbox::pubsub {
namespace {

Endpoint Parsed(const std::string& setting, const char* emulator = nullptr) {
  Endpoint endpoint;
  std::string error;
  EXPECT_TRUE(ParseEndpoint(setting, emulator, &endpoint, &error)) << setting << ": " << error;
  return endpoint;
}

TEST(EndpointTest, EveryFormOfTheSettingIsUnderstood) {
  EXPECT_EQ(Parsed(""), (Endpoint{"pubsub.googleapis.com:443", false}));
  EXPECT_EQ(Parsed("", ""), (Endpoint{"pubsub.googleapis.com:443", false}));
  EXPECT_EQ(Parsed("", "localhost:8085"), (Endpoint{"localhost:8085", true}));
  EXPECT_EQ(Parsed("", "http://localhost:8085/"), (Endpoint{"localhost:8085", true}));
  EXPECT_EQ(Parsed("", "[::1]:8085"), (Endpoint{"[::1]:8085", true}));
  EXPECT_EQ(Parsed("http://127.0.0.1:8085", "other:1"), (Endpoint{"127.0.0.1:8085", true}));
  EXPECT_EQ(Parsed("https://us-east1-pubsub.googleapis.com"),
            (Endpoint{"us-east1-pubsub.googleapis.com:443", false}));
  EXPECT_EQ(Parsed("us-east1-pubsub.googleapis.com:443"),
            (Endpoint{"us-east1-pubsub.googleapis.com:443", false}));
  EXPECT_EQ(Parsed("https://[2001:db8::1]"), (Endpoint{"[2001:db8::1]:443", false}));
}

TEST(EndpointTest, WhatIsNoEndpointIsRefusedWithTheReason) {
  const auto expect = [](const std::string& setting, const std::string& part,
                         const char* emulator = nullptr) {
    Endpoint endpoint;
    std::string error;
    EXPECT_FALSE(ParseEndpoint(setting, emulator, &endpoint, &error)) << setting;
    EXPECT_NE(error.find(part), std::string::npos) << setting << ": " << error;
  };
  expect("pubsub.googleapis.com", "needs a port");
  expect("http://localhost", "needs a port");
  expect("http://", "no host");
  expect("http://:80", "no host");
  expect("localhost:0", "port from 1 to 65535");
  expect("localhost:65536", "port from 1 to 65535");
  expect("localhost:80a", "port from 1 to 65535");
  expect("localhost:", "port from 1 to 65535");
  expect("https://host/path", "only a host and a port");
  expect("host name:80", "only a host and a port");
  expect("user@host:80", "only a host and a port");
  expect("ftp://host:21", "must begin with http:// or https://");
  expect("::1:8085", "[address]:port");
  expect("[::1:8085", "[address]:port");
  expect("[]:8085", "[address]:port");
  expect("", "PUBSUB_EMULATOR_HOST is not valid", "localhost");
}

}  // namespace
}  // namespace postbox::pubsub
