// What tests of provisioning begin with: a file that has no problems.
#ifndef POSTBOX_WORKER_CLI_PROVISION_READ_FILE_H_
#define POSTBOX_WORKER_CLI_PROVISION_READ_FILE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "worker/cli/provision/desired.h"
#include "worker/cli/provision/document.h"

namespace postbox::cli {

inline Desired ReadFile(const std::string& yaml) {
  std::string error;
  const auto document = ParseDocument("f.yaml", yaml, &error);
  EXPECT_EQ(error, "");
  Problems problems("f.yaml");
  Desired desired = ReadDesired(*document, "shop", "", &problems);
  EXPECT_THAT(problems.lines(), ::testing::IsEmpty());
  return desired;
}

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_PROVISION_READ_FILE_H_
