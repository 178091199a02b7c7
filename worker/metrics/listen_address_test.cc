#include "worker/metrics/listen_address.h"

#include <gtest/gtest.h>

namespace postbox::metrics {
namespace {

TEST(ListenAddressTest, AHostAndAPort) {
  EXPECT_EQ(ParseListenAddress("0.0.0.0:9464"), (ListenAddress{"0.0.0.0", 9464}));
  EXPECT_EQ(ParseListenAddress("localhost:0"), (ListenAddress{"localhost", 0}));
  EXPECT_EQ(ParseListenAddress("[::1]:65535"), (ListenAddress{"::1", 65535}));
}

TEST(ListenAddressTest, APortAloneIsLoopback) {
  EXPECT_EQ(ParseListenAddress(":9464"), (ListenAddress{"127.0.0.1", 9464}));
}

TEST(ListenAddressTest, WhatHasAnotherFormIsRefused) {
  for (const char* text : {"", ":", "9464", "host", "host:", "host:x", "host:65536", "host:-1",
                           "host:1 ", "::1:80", "[::1]", "[]:80", "[::1:80", "host:80x"}) {
    EXPECT_FALSE(ParseListenAddress(text)) << text;
  }
}

TEST(ListenAddressTest, AnAddressWithColonsHasBrackets) {
  EXPECT_EQ(FormatListenAddress({"::1", 80}), "[::1]:80");
  EXPECT_EQ(FormatListenAddress({"127.0.0.1", 80}), "127.0.0.1:80");
}

}  // namespace
}  // namespace postbox::metrics
