#include "proto/rules/otlp_headers.h"

#include <gtest/gtest.h>

#include <string>

namespace postbox::pubsub {
namespace {

OtlpHeaders HeadersIn(std::string_view text) {
  OtlpHeaders headers;
  std::string error;
  EXPECT_TRUE(ParseOtlpHeaders(text, &headers, &error)) << error;
  return headers;
}

std::string HeaderErrorOf(std::string_view text) {
  OtlpHeaders headers;
  std::string error;
  EXPECT_FALSE(ParseOtlpHeaders(text, &headers, &error)) << text;
  return error;
}

TEST(OtlpHeadersTest, NamesAreLowerCaseAndValuesAreDecoded) {
  EXPECT_EQ(HeadersIn("api-key=s3cret, Authorization = Bearer%20a%3Db=c ,,x="),
            (OtlpHeaders{{"api-key", "s3cret"}, {"authorization", "Bearer a=b=c"}, {"x", ""}}));
  EXPECT_EQ(HeadersIn(""), OtlpHeaders{});
  EXPECT_EQ(HeadersIn("a=%41"), (OtlpHeaders{{"a", "A"}}));
}

TEST(OtlpHeadersTest, WhatGrpcWouldAbortTheProcessForIsAnError) {
  for (const char* name :
       {"", ":path", "a b", "grpc-timeout", "key-bin", "te", "content-type", "\xc3\xa4", "a\n"}) {
    EXPECT_NE(HeaderErrorOf(std::string(name) + "=x"), "") << name;
  }
  for (const char* value : {"%", "%4", "%4g", "%0a", "%7f", "%c3%a4", "a\nb", "\xc3\xa4"}) {
    EXPECT_NE(HeaderErrorOf(std::string("a=") + value), "") << value;
  }
  EXPECT_NE(HeaderErrorOf("no-value"), "");
}

TEST(OtlpHeadersTest, NoErrorHasAValue) {
  for (const char* text : {"secret%", "a=secret%", "a b=secret", "secret"}) {
    EXPECT_EQ(HeaderErrorOf(text).find("secret"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace postbox::pubsub
