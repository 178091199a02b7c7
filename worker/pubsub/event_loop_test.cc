#include "worker/pubsub/event_loop.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

namespace postbox::pubsub {
namespace {

using std::chrono::milliseconds;

class EventLoopTest : public testing::Test {
 protected:
  std::string error_;
  std::unique_ptr<EventLoop> loop_ = EventLoop::Start("test-loop", &error_);
};

TEST_F(EventLoopTest, ClosuresRunOnTheLoopsThreadInOrderWithEverySignalBlocked) {
  std::vector<int> order;
  bool blocked = false;
  for (int i = 0; i < 1000; ++i) {
    loop_->Post([&, i] {
      order.push_back(i);
      EXPECT_TRUE(loop_->IsLoopThread());
    });
  }
  loop_->Run([&] {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    blocked = sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGUSR1) == 1 &&
              sigismember(&mask, SIGCHLD) == 1;
  });
  EXPECT_TRUE(blocked);
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(order[static_cast<std::size_t>(i)], i);
  sigset_t mine;
  pthread_sigmask(SIG_SETMASK, nullptr, &mine);
  EXPECT_EQ(sigismember(&mine, SIGTERM), 0) << "the caller's own mask is as it was";
}

TEST_F(EventLoopTest, PostsOfManyThreadsAllRun) {
  std::atomic<int> count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) loop_->Post([&] { ++count; });
    });
  }
  for (std::thread& thread : threads) thread.join();
  loop_->Run([] {});
  EXPECT_EQ(count, 20'000);
}

TEST_F(EventLoopTest, TimersRunInTheOrderOfTheirTimesAndNotBefore) {
  std::promise<std::vector<int>> finished;
  std::vector<int> order;
  const auto begin = EventLoop::Clock::now();
  loop_->Post([&] {
    loop_->After(milliseconds(60), [&] {
      order.push_back(3);
      finished.set_value(order);
    });
    loop_->After(milliseconds(20), [&] { order.push_back(1); });
    const auto cancelled = loop_->After(milliseconds(30), [&] { order.push_back(99); });
    loop_->After(milliseconds(40), [&] { order.push_back(2); });
    loop_->Cancel(cancelled);
    loop_->Cancel({});
  });
  EXPECT_EQ(finished.get_future().get(), (std::vector<int>{1, 2, 3}));
  EXPECT_GE(EventLoop::Clock::now() - begin, milliseconds(60));
}

TEST_F(EventLoopTest, ATimerThatSetsItselfAgainAtOnceStarvesNothingElse) {
  std::atomic<bool> go_on = true;
  std::function<void()> again = [&] {
    if (go_on) loop_->After(milliseconds(0), [&] { again(); });
  };
  loop_->Post([&] { again(); });
  for (int i = 0; i < 100; ++i) loop_->Run([] {});
  go_on = false;
  EXPECT_TRUE(loop_->Stop());  // the last timer refers to variables of this frame
}

TEST_F(EventLoopTest, StopRunsWhatWasPostedAndThenTheLastClosure) {
  std::string order;
  for (const char c : {'a', 'b', 'c'}) {
    loop_->Post([&order, c] { order += c; });
  }
  loop_->Post(
      [&] { loop_->After(std::chrono::hours(1), [] { ADD_FAILURE() << "timers are dropped"; }); });
  EXPECT_TRUE(loop_->Stop([&] {
    order += "z";
    EXPECT_TRUE(loop_->IsLoopThread());
  }));
  EXPECT_EQ(order, "abcz");
  loop_->Post([] { ADD_FAILURE() << "the loop is closed"; });
}

TEST_F(EventLoopTest, StopWaitsForOperationsThatAreStillOut) {
  bool completed = false;
  auto alarm = std::make_unique<grpc::Alarm>();
  loop_->Run([&] {
    alarm->Set(loop_->completion_queue(), std::chrono::system_clock::now() + milliseconds(50),
               loop_->Tag([&](bool ok) { completed = ok; }));
  });
  EXPECT_TRUE(loop_->Stop([&] { alarm.reset(); }));
  EXPECT_TRUE(completed);
}

TEST_F(EventLoopTest, StopIsBoundedWhenAnOperationDoesNotEnd) {
  // The alarm and its tag are leaked on purpose, as this case requires.
  auto* const alarm = new grpc::Alarm;
  loop_->Run([&] {
    alarm->Set(loop_->completion_queue(), std::chrono::system_clock::now() + std::chrono::hours(1),
               loop_->Tag([](bool) { ADD_FAILURE() << "must not run any more"; }));
  });
  bool last_ran = false;
  EXPECT_FALSE(loop_->Stop([&] { last_ran = true; }, milliseconds(50)));
  EXPECT_FALSE(last_ran);
}

}  // namespace
}  // namespace postbox::pubsub
