// The I/O thread: one gRPC completion queue, timers and posted closures, all run serially on one
// thread.
//
// Invariants:
//   - The thread is started with every signal blocked, and gRPC is initialised on it (the
//     completion queue is made there), so the threads that gRPC starts inherit the mask. In a
//     Postgres worker a signal must reach the main thread only.
//   - Everything given to Post(), After() and Tag() runs on this thread, one at a time, so what
//     belongs to the loop needs no locks. Nothing of gRPC is to be called on any other thread;
//     Post() wakes the queue with every signal blocked.
//   - Shutdown is bounded. Stop() runs the loop until no started operation is left (owners cancel
//     their calls first) or the limit is over; in the second case the queue is left behind on
//     purpose, since gRPC aborts the process when a queue with operations is destroyed.
//
// How to use gRPC's async interface with it:
//     auto stream = stub->PrepareAsyncStreamingPull(&context, loop->completion_queue());
//     stream->StartCall(loop->Tag([this](bool ok) { ... }));
// A tag is used for one operation; its closure runs when the operation is complete, and is freed
// then.

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

// Blocks every signal in this thread while it lives.
class ScopedSignalBlock {
 public:
  ScopedSignalBlock();
  ~ScopedSignalBlock();
  ScopedSignalBlock(const ScopedSignalBlock&) = delete;
  ScopedSignalBlock& operator=(const ScopedSignalBlock&) = delete;

 private:
  struct Saved;
  std::unique_ptr<Saved> saved_;
};

class EventLoop {
 public:
  using Clock = std::chrono::steady_clock;
  using Closure = absl::AnyInvocable<void()>;
  using Completion = absl::AnyInvocable<void(bool ok)>;

  // Names a timer. A default one names none, and to cancel it does nothing.
  struct TimerId {
    Clock::time_point due;
    std::uint64_t number = 0;
    // NOLINTNEXTLINE(modernize-use-nullptr): it takes the 0 that <=> is compared with for a pointer
    friend auto operator<=>(const TimerId&, const TimerId&) = default;
  };

  // Starts the thread (`name`: at most 15 characters). Null and one sentence in `error` if the
  // system has no thread left.
  static std::unique_ptr<EventLoop> Start(const std::string& name, std::string* error);
  ~EventLoop();  // Stop(), if that was not called

  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Any thread. Runs `closure` on the loop's thread, after all that was posted before. After Stop()
  // it is dropped.
  void Post(Closure closure);
  // Any thread but the loop's: posts and waits until it has run. Do not use after Stop().
  void Run(Closure closure);

  // The loop's thread only, all of these.
  TimerId After(Clock::duration delay, Closure closure);
  void Cancel(const TimerId& timer);
  void* Tag(Completion completion);
  grpc::CompletionQueue* completion_queue() { return queue_.get(); }

  bool IsLoopThread() const { return std::this_thread::get_id() == thread_.get_id(); }

  // Any thread but the loop's, once. Waits until every tag was delivered, runs `last` on the loop's
  // thread (the place to destroy what belongs to the loop: stubs, channels), and joins the thread.
  // If tags are still out when `limit` is over, returns false: `last` did not run, and what the
  // tags' closures use must stay (leak it).
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
  bool wake_pending_ = false;        // guarded: wake_ is set and was not delivered yet
  bool closed_ = false;              // guarded: Post() drops, wake_ must not be set any more
  bool stop_requested_ = false;      // guarded
  bool drained_ = false;             // written by the thread before it ends
  Closure last_;                     // guarded
  Clock::time_point stop_deadline_;  // guarded
  std::unique_ptr<grpc::Alarm>
      wake_;  // made on the thread; Set() by whoever turned wake_pending_ on
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_EVENT_LOOP_H_
