#include "worker/base/line_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <sstream>
#include <string>

namespace postbox {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kNone{0};
constexpr milliseconds kPatience{20'000};

// A pipe, of which each end is closed once.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(pipe2(fds_, O_CLOEXEC), 0); }
  ~Pipe() {
    CloseReader();
    close(fds_[1]);
  }
  int writer() const { return fds_[1]; }
  void CloseReader() {
    if (fds_[0] >= 0) close(fds_[0]);
    fds_[0] = -1;
  }
  // Fills it, so that the next write waits. Returns how many bytes that took.
  std::size_t Fill() const {
    const int flags = fcntl(fds_[1], F_GETFL);
    fcntl(fds_[1], F_SETFL, flags | O_NONBLOCK);
    const std::string page(4096, '.');
    std::size_t filled = 0;
    ssize_t written = 0;
    while ((written = write(fds_[1], page.data(), page.size())) > 0) {
      filled += static_cast<std::size_t>(written);
    }
    fcntl(fds_[1], F_SETFL, flags);
    return filled;
  }
  std::string Read(std::size_t bytes) const {
    std::string text(bytes, '\0');
    std::size_t have = 0;
    while (have < bytes) {
      pollfd data{fds_[0], POLLIN, 0};
      if (poll(&data, 1, static_cast<int>(kPatience.count())) != 1) break;
      const ssize_t got = read(fds_[0], text.data() + have, bytes - have);
      if (got <= 0) break;
      have += static_cast<std::size_t>(got);
    }
    text.resize(have);
    return text;
  }
  // Until its writer has written everything.
  std::string ReadAll(LineQueue* queue) const {
    std::string text;
    while (!queue->Finish(kNone)) text += Read(1);
    pollfd data{fds_[0], POLLIN, 0};
    while (poll(&data, 1, 0) == 1) text += Read(1);
    return text;
  }

 private:
  int fds_[2] = {-1, -1};
};

TEST(LineQueueTest, LinesAreWrittenInTheirOrder) {
  const Pipe pipe;
  LineQueue queue(pipe.writer());
  queue.Push("one\n");
  queue.Push("two\n");
  EXPECT_TRUE(queue.Finish(kPatience));
  EXPECT_EQ(pipe.Read(8), "one\ntwo\n");
}

TEST(LineQueueTest, APipeThatNothingReadsHoldsUpNoCaller) {
  const Pipe pipe;
  const std::size_t filled = pipe.Fill();
  LineQueue queue(pipe.writer());
  for (int i = 0; i < 100; ++i) queue.Push("line\n");
  EXPECT_FALSE(queue.Finish(kNone));
  EXPECT_EQ(pipe.Read(filled).size(), filled);
  EXPECT_TRUE(queue.Finish(kPatience));
  EXPECT_EQ(pipe.Read(500).size(), 500u);
}

TEST(LineQueueTest, TheOldestLinesAreDroppedAndALineInTheirPlaceSaysHowMany) {
  const Pipe pipe;
  const std::size_t filled = pipe.Fill();
  LineQueue queue(pipe.writer(), {.lines = 3});
  queue.SayDropped([](uint64_t count) { return std::to_string(count) + " dropped\n"; });
  for (int i = 0; i < 1000; ++i) queue.Push(std::to_string(i) + "\n");
  EXPECT_EQ(pipe.Read(filled).size(), filled);
  const std::string text = pipe.ReadAll(&queue);
  // The thread may have taken a line, or the first that says so, before the others came.
  std::istringstream lines(text);
  uint64_t counted = 0;
  std::string line;
  while (std::getline(lines, line)) {
    counted += line.ends_with(" dropped") ? std::stoull(line) : 1;
  }
  EXPECT_EQ(counted, 1000u) << text;
  EXPECT_TRUE(text.ends_with(" dropped\n997\n998\n999\n")) << text;
  queue.Push("later\n");
  EXPECT_EQ(pipe.Read(6), "later\n") << "what was dropped is said once";
}

TEST(LineQueueTest, TheBytesThatWaitAreBounded) {
  const Pipe pipe;
  const std::size_t filled = pipe.Fill();
  LineQueue queue(pipe.writer(), {.lines = 1000, .bytes = 10});
  queue.SayDropped([](uint64_t) { return std::string("dropped\n"); });
  for (int i = 0; i < 10; ++i) queue.Push("abc\n");
  queue.Push("a line of any size is kept\n");
  EXPECT_EQ(pipe.Read(filled).size(), filled);
  const std::string text = pipe.ReadAll(&queue);
  EXPECT_TRUE(text.ends_with("dropped\na line of any size is kept\n")) << text;
  EXPECT_LT(text.size(), 60u) << text;
}

TEST(LineQueueTest, WhatCannotBeWrittenIsDropped) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  LineQueue queue(full);
  for (int i = 0; i < 10; ++i) queue.Push("line\n");
  EXPECT_TRUE(queue.Finish(kPatience));
  close(full);
}

TEST(LineQueueTest, AReaderThatIsGoneEndsNoProcess) {
  Pipe pipe;
  pipe.CloseReader();
  LineQueue queue(pipe.writer());
  queue.Push("one\n");
  queue.Push("two\n");
  EXPECT_TRUE(queue.Finish(kPatience));
}

TEST(LineQueueTest, AFileThatAnotherProcessHasMadeNonBlockingLosesNothing) {
  const Pipe pipe;
  const std::size_t filled = pipe.Fill();
  fcntl(pipe.writer(), F_SETFL, fcntl(pipe.writer(), F_GETFL) | O_NONBLOCK);
  LineQueue queue(pipe.writer());
  const std::string long_line(100'000, 'x');
  queue.Push(long_line);
  EXPECT_FALSE(queue.Finish(kNone));
  EXPECT_EQ(pipe.Read(filled).size(), filled);
  EXPECT_EQ(pipe.Read(long_line.size()), long_line);
}

}  // namespace
}  // namespace postbox
