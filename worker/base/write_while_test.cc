#include "worker/base/write_while.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <string>
#include <thread>

namespace postbox {
namespace {

TEST(WriteWhileTest, ItWaitsForAReader) {
  int fds[2];
  ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
  const std::string text(300'000, 'x');
  std::string got;
  std::thread reader([&] {
    char bytes[4096];
    ssize_t count = 0;
    while (got.size() < text.size() && (count = read(fds[0], bytes, sizeof bytes)) > 0) {
      got.append(bytes, static_cast<std::size_t>(count));
    }
  });
  EXPECT_TRUE(WriteWhile(fds[1], text, [] { return true; }));
  reader.join();
  EXPECT_EQ(got, text);
  close(fds[0]);
  close(fds[1]);
}

TEST(WriteWhileTest, ItGivesUpWhenItIsToldTo) {
  int fds[2];
  ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
  int asked = 0;
  EXPECT_FALSE(WriteWhile(fds[1], std::string(1 << 20, 'x'), [&asked] { return ++asked < 2; }));
  EXPECT_EQ(asked, 2);
  close(fds[0]);
  close(fds[1]);
}

TEST(WriteWhileTest, WhatCannotBeWrittenIsNot) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  EXPECT_FALSE(WriteWhile(full, "text", [] { return true; }));
  close(full);
}

}  // namespace
}  // namespace postbox
