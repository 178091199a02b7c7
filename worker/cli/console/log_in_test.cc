#include "worker/cli/console/log_in.h"

#include <gtest/gtest.h>

namespace postbox::cli {
namespace {

TEST(LogInTest, TheUserOfTheConnectionStringIsReplacedAndTheRestStays) {
  std::string error;
  EXPECT_EQ(DsnOf("host=db user=own password=secret passfile=/f dbname=shop", "ops", "pw", &error),
            "dbname='shop' host='db' user='ops' password='pw'");
  EXPECT_EQ(DsnOf("postgresql://own:secret@db:5433/shop?sslmode=require", "ops", "pw", &error),
            "dbname='shop' host='db' port='5433' sslmode='require' user='ops' password='pw'");
  EXPECT_EQ(DsnOf("shop", "ops", "pw", &error), "dbname='shop' user='ops' password='pw'");
  EXPECT_EQ(DsnOf("", "ops", "pw", &error), "user='ops' password='pw'");
}

TEST(LogInTest, NoRoleOrPasswordAddsAnotherParameter) {
  std::string error;
  EXPECT_EQ(DsnOf("dbname=shop", "a' host='evil", "b\\' user='postgres", &error),
            "dbname='shop' user='a\\' host=\\'evil' password='b\\\\\\' user=\\'postgres'");
}

TEST(LogInTest, WhatIsNoConnectionStringIsAnError) {
  std::string error;
  EXPECT_EQ(DsnOf("nonsense=1", "ops", "pw", &error), "");
  EXPECT_NE(error, "");
}

TEST(LogInTest, AnEmptyPasswordIsRefusedBeforeAnyConnection) {
  std::string error;
  EXPECT_EQ(LogIn("dbname=shop", "ops", "", -1, &error), nullptr);
  EXPECT_EQ(LogIn("dbname=shop", "", "pw", -1, &error), nullptr);
  EXPECT_EQ(LogIn("dbname=shop", std::string("o\0s", 3), "pw", -1, &error), nullptr);
}

}  // namespace
}  // namespace postbox::cli
