#include "proto/rules/json_number.h"

#include <gtest/gtest.h>

#include <string>

namespace postbox::json {
namespace {

std::string Whole(std::string_view number) {
  char out[kMostDigits + 1];
  return {out, WriteWhole(number, out)};
}

TEST(JsonNumberTest, AWholeNumberIsTheSameHoweverItIsWritten) {
  for (const char* number : {"12", "12.0", "12.000", "1.2e1", "1.2E+1", "120e-1", "0.12e2"}) {
    EXPECT_EQ(Whole(number), "12") << number;
  }
  EXPECT_EQ(Whole("1e3"), "1000");
  EXPECT_EQ(Whole("-100e-2"), "-1");
  EXPECT_EQ(Whole("10203.0"), "10203");
  EXPECT_EQ(Whole("9223372036854775807"), "9223372036854775807");
  EXPECT_EQ(Whole("922337203685477580.7e1"), "9223372036854775807");
}

TEST(JsonNumberTest, ZeroHasNoSign) {
  for (const char* number : {"0", "-0", "0.0", "-0.000", "0e5", "0E-5", "0e999999999999"}) {
    EXPECT_EQ(Whole(number), "0") << number;
  }
}

TEST(JsonNumberTest, ANumberWithAFractionIsNotWhole) {
  for (const char* number : {"12.5", "1e-1", "123e-2", "0.1", "1.0000000000000000000000000001"}) {
    EXPECT_EQ(Whole(number), "") << number;
  }
}

TEST(JsonNumberTest, ANumberOfTooManyDigitsIsNotWrittenOut) {
  EXPECT_EQ(Whole("1e39"), "1" + std::string(39, '0'));
  EXPECT_EQ(Whole("1e40"), "");
  EXPECT_EQ(Whole("-" + std::string(40, '7')), "-" + std::string(40, '7'));
  EXPECT_EQ(Whole(std::string(41, '7')), "");
  EXPECT_EQ(Whole("1e999999999999999999999"), "");
  EXPECT_EQ(Whole("1e-999999999999999999999"), "");
  EXPECT_EQ(Whole("0." + std::string(100, '0') + "12e102"), "12");
}

TEST(JsonNumberTest, ANumberIsScaledAndRounded) {
  EXPECT_EQ(Scaled("1714564800", 6), 1714564800000000);
  EXPECT_EQ(Scaled("1714564800.25", 6), 1714564800250000);
  EXPECT_EQ(Scaled("1.7145648e12", 3), 1714564800000000);
  EXPECT_EQ(Scaled("-1.5", 0), -2);
  EXPECT_EQ(Scaled("1.4999999", 0), 1);
  EXPECT_EQ(Scaled("0.0000005", 6), 1);
  EXPECT_EQ(Scaled("0.00000049", 6), 0);
  EXPECT_EQ(Scaled("0", 6), 0);
  EXPECT_EQ(Scaled("-0.0", 6), 0);
  EXPECT_EQ(Scaled("1714564800.1234564" + std::string(100, '9'), 6), 1714564800123456);
}

TEST(JsonNumberTest, WhatNeedsMoreThan64BitsIsNotScaled) {
  EXPECT_EQ(Scaled("9223372036854775807", 0), 9223372036854775807);
  EXPECT_EQ(Scaled("9223372036854775808", 0), std::nullopt);
  EXPECT_EQ(Scaled("1e19", 0), std::nullopt);
  EXPECT_EQ(Scaled("1e14", 6), std::nullopt);
  EXPECT_EQ(Scaled("1e-999999999", 6), 0);
}

}  // namespace
}  // namespace postbox::json
