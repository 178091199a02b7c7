// The I/O thread: one gRPC completion queue, timers and posted closures, which run one after the
// other on one thread.
//
// Invariants:
//   - The thread is started with every signal blocked, and gRPC is initialized on it, because the
//     completion queue is made there. So the threads that gRPC starts inherit the mask. In a
//     Postgres worker a signal must reach only the main thread.
//   - Everything given to Post(), After() and Tag() runs on this thread, one at a time. So what
//     belongs to the loop needs no locks. Other threads must not call gRPC; the only exception is
//     Post(), which wakes the queue with every signal blocked.
//   - Shutdown takes bounded time. Stop() runs the loop until no started operation is left or its
//     limit is over; the owners of calls cancel them before. If the limit is over, the queue is
//     leaked on purpose, because gRPC aborts the process when a queue with operations is destroyed.
//
// Use with gRPC's asynchronous interface:
//     auto stream = stub->PrepareAsyncStreamingPull(&context, loop->completion_queue());
//     stream->StartCall(loop->Tag([this](bool ok) { ... }));
// A tag is used for one operation. Its closure runs when the operation is complete, and is freed
// afterwards.

#ifndef POSTBOX_WORKER_PUBSUB_EVENT_LOOP_H_
#define POSTBOX_WORKER_PUBSUB_EVENT_LOOP_H_

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"

namespace postbox::pubsub {

class EventLoop {
 public:
  using Clock = std::chrono::steady_clock;
  using Closure = absl::AnyInvocable<void()>;
  using Completion = absl::AnyInvocable<void(bool ok)>;

  // Identifies a timer. A default-constructed one identifies none; cancelling it has no effect.
  struct TimerId {
    Clock::time_point due;
    std::uint64_t number = 0;
    // NOLINTNEXTLINE(modernize-use-nullptr): the check takes the 0 compared with <=> for a pointer
    friend auto operator<=>(const TimerId&, const TimerId&) = default;
  };

  // Starts the thread; `name` has at most 15 characters. If no thread can be started, returns null
  // and puts one sentence into `error`.
  static std::unique_ptr<EventLoop> Start(const std::string& name, std::string* error);
  ~EventLoop();  // calls Stop(), if that was not done

  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Any thread. Runs `closure` on the loop's thread, after everything that was posted before. After
  // Stop() the closure is dropped.
  void Post(Closure closure);
  // Any thread but the loop's. Posts the closure and waits until it has run. Not to be called after
  // Stop().
  void Run(Closure closure);

  // The following are for the loop's thread only.
  TimerId After(Clock::duration delay, Closure closure);
  void Cancel(const TimerId& timer);
  void* Tag(Completion completion);
  grpc::CompletionQueue* completion_queue() { return queue_.get(); }

  bool IsLoopThread() const { return std::this_thread::get_id() == thread_.get_id(); }

  // Any thread but the loop's, once. Waits until every tag was delivered, runs `last` on the loop's
  // thread, and joins the thread. `last` is where stubs, channels and other objects of the loop are
  // destroyed. If tags are not delivered when `limit` is over, returns false: `last` did not run,
  // and what the closures of the tags refer to must be leaked.
  bool Stop(Closure last = nullptr, Clock::duration limit = std::chrono::seconds(5));

 private:
  EventLoop() = default;
  void ThreadMain();
  void RunPosted();
  void RunDueTimers();

  std::thread thread_;
  std::unique_ptr<grpc::CompletionQueue> queue_;  // made and destroyed on the thread

  // The loop's thread only.
  std::map<TimerId, Closure> timers_;
  std::uint64_t last_timer_ = 0;
  std::size_t tags_out_ = 0;

  std::mutex mutex_;
  std::vector<Closure> posted_;      // guarded by mutex_
  bool wake_pending_ = false;        // guarded: wake_ is set and is not delivered yet
  bool closed_ = false;              // guarded: Post() drops closures, wake_ must not be set
  bool stop_requested_ = false;      // guarded
  bool drained_ = false;             // written by the thread before it ends
  Closure last_;                     // guarded
  Clock::time_point stop_deadline_;  // guarded
  // Made on the thread. Set by the caller of Post() that turned wake_pending_ on.
  std::unique_ptr<grpc::Alarm> wake_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_EVENT_LOOP_H_
