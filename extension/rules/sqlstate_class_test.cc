#include "extension/rules/sqlstate_class.h"

#include <gtest/gtest.h>

namespace postbox {
namespace {

TEST(SqlstateClassTest, WhatThePeerOrTheServerCausedIsTransient) {
  for (const char* state : {"", "08006", "08001", "40001", "40P01", "53100", "53300", "55P03",
                            "57014", "57P01", "57P03", "58030", "25006"}) {
    EXPECT_TRUE(IsTransientSqlstate(state)) << state;
  }
}

TEST(SqlstateClassTest, WhatTheEventCausedIsPermanent) {
  for (const char* state : {"22P02", "22001", "23505", "23502", "42P01", "42501", "P0001", "P0002",
                            "0A000", "55000", "XX000", "25001", "54000"}) {
    EXPECT_FALSE(IsTransientSqlstate(state)) << state;
  }
}

TEST(SqlstateClassTest, ContentionIsWhatASmallerTransactionMayAvoid) {
  for (const char* state : {"40P01", "40001", "55P03", "53200", "53100"}) {
    EXPECT_TRUE(IsContentionSqlstate(state)) << state;
  }
  for (const char* state : {"", "57014", "57P01", "08006", "23505", "55000"}) {
    EXPECT_FALSE(IsContentionSqlstate(state)) << state;
  }
}

}  // namespace
}  // namespace postbox
