#include "worker/pubsub/event_loop.h"

#include <absl/synchronization/mutex.h>
#include <grpc/support/time.h>
#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <system_error>
#include <utility>

#include "worker/pubsub/signal_block.h"

namespace postbox::pubsub {

namespace {

// The longest time that one wait for the queue takes, even without a timer.
constexpr std::chrono::minutes kLongestWait(10);

gpr_timespec DeadlineIn(EventLoop::Clock::duration delay) {
  const auto micros = std::chrono::ceil<std::chrono::microseconds>(delay).count();
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_micros(micros, GPR_TIMESPAN));
}

}  // namespace

std::unique_ptr<EventLoop> EventLoop::Start(const std::string& name, std::string* error) {
  // Distributions build abseil with its detection of lock cycles. It is meant for debugging and
  // makes every gRPC call some percent slower.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  std::unique_ptr<EventLoop> loop(new EventLoop);
  std::mutex mutex;
  std::condition_variable started;
  bool ready = false;
  try {
    const ScopedSignalBlock block;
    loop->thread_ = std::thread([&, self = loop.get()] {
      self->queue_ = std::make_unique<grpc::CompletionQueue>();
      self->wake_ = std::make_unique<grpc::Alarm>();
      {
        const std::lock_guard<std::mutex> lock(mutex);
        ready = true;
        // Under the lock, because the waiter's frame lives only until it is released.
        started.notify_one();
      }
      self->ThreadMain();
    });
  } catch (const std::system_error& e) {
    *error = std::string("could not start the I/O thread: ") + e.code().message();
    return nullptr;
  }
  std::unique_lock<std::mutex> lock(mutex);
  started.wait(lock, [&] { return ready; });
  pthread_setname_np(loop->thread_.native_handle(), name.substr(0, 15).c_str());
  return loop;
}

EventLoop::~EventLoop() {
  if (thread_.joinable()) Stop();
}

void EventLoop::Post(Closure closure) {
  bool wake = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) return;
    posted_.push_back(std::move(closure));
    // The loop looks at posted_ before it waits, so it need not wake itself.
    if (!wake_pending_ && !IsLoopThread()) {
      wake_pending_ = true;
      wake = true;
    }
    if (wake) {
      // Under the lock, so that the queue cannot be shut down meanwhile. With signals blocked, so
      // that neither this call nor a thread that gRPC starts in it runs a signal handler.
      const ScopedSignalBlock block;
      wake_->Set(queue_.get(), gpr_now(GPR_CLOCK_MONOTONIC), nullptr);
    }
  }
}

void EventLoop::Run(Closure closure) {
  std::mutex mutex;
  std::condition_variable finished;
  bool done = false;
  Post([&] {
    closure();
    const std::lock_guard<std::mutex> lock(mutex);
    done = true;
    finished.notify_one();
  });
  std::unique_lock<std::mutex> lock(mutex);
  finished.wait(lock, [&] { return done; });
}

EventLoop::TimerId EventLoop::After(Clock::duration delay, Closure closure) {
  const TimerId id{Clock::now() + std::max(delay, Clock::duration::zero()), ++last_timer_};
  timers_.emplace(id, std::move(closure));
  return id;
}

void EventLoop::Cancel(const TimerId& timer) { timers_.erase(timer); }

void* EventLoop::Tag(Completion completion) {
  ++tags_out_;
  return new Completion(std::move(completion));
}

bool EventLoop::Stop(Closure last, Clock::duration limit) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_requested_ = true;
    stop_deadline_ = Clock::now() + limit;
    last_ = std::move(last);
  }
  Post([] {});  // wakes the loop
  thread_.join();
  return drained_;
}

void EventLoop::RunPosted() {
  std::vector<Closure> batch;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    batch.swap(posted_);
  }
  for (Closure& closure : batch) closure();
}

void EventLoop::RunDueTimers() {
  if (timers_.empty()) return;
  // A timer that is set while timers run waits for the next round, so that timers without a delay
  // cannot starve the queue.
  const TimerId end{Clock::now(), last_timer_};
  while (!timers_.empty() && timers_.begin()->first <= end) {
    Closure closure = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    closure();
  }
}

void EventLoop::ThreadMain() {
  while (true) {
    RunPosted();
    RunDueTimers();

    Clock::duration wait = kLongestWait;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!posted_.empty()) wait = Clock::duration::zero();
      if (stop_requested_ && posted_.empty()) {
        if (tags_out_ == 0) break;
        const Clock::time_point now = Clock::now();
        if (now >= stop_deadline_) break;
        wait = stop_deadline_ - now;
      }
    }
    if (!timers_.empty()) {
      wait = std::min(wait,
                      std::max(timers_.begin()->first.due - Clock::now(), Clock::duration::zero()));
    }

    void* tag = nullptr;
    bool ok = false;
    if (queue_->AsyncNext(&tag, &ok, DeadlineIn(wait)) != grpc::CompletionQueue::GOT_EVENT)
      continue;
    if (tag == nullptr) {
      const std::lock_guard<std::mutex> lock(mutex_);
      wake_pending_ = false;
      continue;
    }
    --tags_out_;
    const std::unique_ptr<Completion> completion(static_cast<Completion*>(tag));
    (*completion)(ok);
  }

  Closure last;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    posted_.clear();
    last = std::move(last_);
  }
  timers_.clear();
  if (tags_out_ != 0) {
    static_cast<void>(queue_.release());
    static_cast<void>(wake_.release());
    return;
  }
  if (last) last();
  queue_->Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) {
  }
  wake_.reset();
  queue_.reset();
  drained_ = true;
}

}  // namespace postbox::pubsub
