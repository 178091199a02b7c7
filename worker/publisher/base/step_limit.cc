#include "worker/publisher/base/step_limit.h"

#include <csignal>
#include <ctime>

#include "extension/shared/time_scale.h"
#include "worker/publisher/base/process_usage.h"
#include "worker/publisher/base/registration.h"

extern "C" {
#include <postmaster/interrupt.h>
}

namespace postbox::publisher {
namespace {

using std::chrono::milliseconds;

// How often the timer looks. Most steps are over before it does so for the first time.
constexpr int kLookMs = 50;
// The server's own timeouts are not used: their signal comes even when a timeout has been disabled,
// and sets the latch, which would wake an idle worker after each step. Nothing in the server uses
// this signal.
constexpr int kSignal = SIGVTALRM;
// Memory grows fast: who does not obey at once has no second.
constexpr int64 kMemoryGraceMs = 200;
// The time in which others have the processor does not count, up to so many times the step's, and
// no longer than leases bear.
constexpr int64 kMostWaits = 9;

enum class Limit : int { kNone, kTime, kMemory, kLeave };

// Read and written by the timer's signal handler, which runs on the main thread.
struct Step {
  volatile bool running = false;
  volatile Limit over = Limit::kNone;
  volatile bool ending = false;
  Oid outbox = InvalidOid;
  int64 time_ms = 0;
  // In milliseconds of the monotonic clock; deadline and end_at in the step's own time.
  volatile int64 deadline = 0;
  volatile int64 leave_at = 0;  // if the worker has to leave by then
  int64 end_at = 0;             // of the process
  int64 most_wait_ms = 0;
  std::size_t memory_at_first = 0;  // 0: not looked yet
  int64 wait_at_first = 0;          // in milliseconds
};
Step step;
timer_t timer;
bool created = false;

// A clock that is set ends no step.
int64 Now() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64{1000} + now.tv_nsec / 1'000'000;
}

// A system that does not say it once more has said it before.
int64 Wait() {
  static int64 last = 0;
  return last = std::max(last, static_cast<int64>(ProcessorWait().count()));
}

// The time that the step has had: on a busy machine it is not the outbox that is slow.
int64 OwnTime(int64 now) { return now - std::min(Wait() - step.wait_at_first, step.most_wait_ms); }

void SetTime(int64 now, milliseconds time) {
  // A look in between sees the old deadline or the new one.
  step.time_ms = time.count();
  step.most_wait_ms =
      std::min(kMostWaits * step.time_ms, static_cast<int64>(LeaseMilliseconds() / 4));
  step.deadline = now + step.time_ms;
  step.wait_at_first = Wait();
}

Limit OverLimit(int64 now) {
  if (OwnTime(now) >= step.deadline) return Limit::kTime;
  if (ShutdownRequestPending && now >= step.leave_at) return Limit::kLeave;
  const std::size_t memory = PrivateMemory();
  if (step.memory_at_first == 0) step.memory_at_first = memory;
  return memory > step.memory_at_first + kStepMemory ? Limit::kMemory : Limit::kNone;
}

void Interrupt() {
  InterruptPending = true;
  SetLatch(MyLatch);
}

// The timer's signal handler.
void Look() {
  if (!step.running) return;
  const int64 now = Now();
  if (step.over == Limit::kNone) {
    step.over = OverLimit(now);
    if (step.over != Limit::kNone) {
      const int64 grace = step.over == Limit::kMemory ? kMemoryGraceMs : Scaled(kStepGrace).count();
      step.end_at = OwnTime(now) + grace;
      QueryCancelPending = true;
      Interrupt();
    }
  } else if (OwnTime(now) >= step.end_at) {
    step.ending = true;
    ProcDiePending = true;
    Interrupt();
  }
}

void OnSignal(int /*signal*/) {
  const int saved = errno;
  Look();
  errno = saved;
}

// The signal comes to this thread: all others block every signal.
void CreateTimer() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigevent event = {};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = kSignal;
  if (sigaction(kSignal, &action, nullptr) != 0 ||
      timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) {
    Throw(ERRCODE_INSUFFICIENT_RESOURCES, "could not create a timer");
  }
  created = true;
}

// Every so many milliseconds; 0: never.
void SetTimer(int milliseconds) {
  itimerspec times = {};
  times.it_interval.tv_nsec = times.it_value.tv_nsec = milliseconds * 1'000'000L;
  timer_settime(timer, 0, &times, nullptr);
}

}  // namespace

void StepLimit::Begin(Oid outbox, milliseconds time) {
  step.over = Limit::kNone;
  step.ending = false;
  step.outbox = outbox;
  const int64 now = Now();
  SetTime(now, time);
  step.leave_at = now + Scaled(kLeaveTime).count();
  step.memory_at_first = 0;
  if (!created) CreateTimer();
  step.running = true;
  SetTimer(kLookMs);
}

void StepLimit::Extend(milliseconds time) {
  SetTime(Now(), time);
  step.leave_at = 0;
}

void StepLimit::End() {
  if (!step.running) return;
  step.running = false;
  SetTimer(0);
  if (step.over != Limit::kNone) QueryCancelPending = false;
  if (step.ending) ProcDiePending = false;
  step.ending = false;
}

std::string StepLimit::Cause() {
  switch (step.over) {
    case Limit::kTime:
      return "a statement on the outbox took longer than " + std::to_string(step.time_ms) + " ms";
    case Limit::kMemory:
      return "a statement on the outbox took more than " + std::to_string(kStepMemory >> 20) +
             " MB of memory";
    case Limit::kLeave:
      return "the worker had to exit before a long statement on the outbox finished";
    case Limit::kNone:
      break;
  }
  return "";
}

Oid StepLimit::EndingFor() { return step.ending ? step.outbox : InvalidOid; }

}  // namespace postbox::publisher
