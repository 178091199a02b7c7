#include "worker/puller/work_queue.h"

#include <algorithm>
#include <utility>

#include "worker/puller/log.h"

namespace postbox::puller {
namespace {

// How long the end waits for dead letters that are on their way.
constexpr std::chrono::milliseconds kLetterTimeout{1000};

}  // namespace

WorkQueue::WorkQueue(const SubscriptionConfig& config, ConnectionShares* shares, ApplyGate* gate,
                     ConsumerHealth* health, PullStatus* status, ParkedRetry* parked,
                     std::function<void()> give_back)
    : subscription_(config.name),
      status_(status),
      parked_(parked),
      give_back_(std::move(give_back)),
      held_(config, health),
      schedule_(shares, gate) {}

void WorkQueue::Push(std::vector<Delivery> deliveries) {
  bool wake = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    wake = held_.Push(&deliveries, Clock::now());
  }
  if (wake) changed_.notify_all();
}

std::vector<uint64_t> WorkQueue::TakeSuspended() {
  std::vector<uint64_t> handles;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    handles = held_.TakeSuspended(Clock::now());
  }
  changed_.notify_one();  // one applier is enough to wait for the next time
  return handles;
}

std::vector<uint64_t> WorkQueue::Drain() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return held_.Drain();
}

WorkQueue::Holding WorkQueue::Held() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {held_.in_hand(), held_.Waiting(), held_.oldest()};
}

WorkQueue::Crew WorkQueue::Appliers() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int busy = schedule_.busy();
  return {.connections = schedule_.connections(), .busy = busy, .idle = schedule_.running() - busy};
}

void WorkQueue::Join() {
  const std::lock_guard<std::mutex> lock(mutex_);
  schedule_.Join();
}

std::optional<WorkQueue::Task> WorkQueue::Next(Applier* applier, size_t limit) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    applier->inbox->Progressed();
    const auto now = Clock::now();
    if (held_.BeginGiveBack(now)) give_back_();
    held_.Resume(now);
    if (applier->session.connected && !applier->inbox->connected()) {
      schedule_.Lost(&applier->session);
      changed_.notify_all();
    }
    const ApplierSchedule::Due due{held_.NextBatch(), status_->NextReport(), held_.NextLook(),
                                   ending_ ? Clock::time_point::max() : parked_->Next()};
    const auto [step, until] = schedule_.Next(&applier->session, due, now);
    if (step == Step::kApply) {
      applier->paced->Enter();
      return Task{step, held_.Take(limit, now)};
    }
    if (step == Step::kRetryParked) return Task{.step = step, .count = parked_->Begin(now)};
    if (step != Step::kWait) return Task{step};
    applier->inbox->Waits();
    changed_.wait_until(lock, until);
    schedule_.Done(applier->session, step);
  }
  schedule_.Leave(applier->session);
  changed_.notify_all();
  return std::nullopt;
}

void WorkQueue::ConnectDone(Applier* applier, bool connected, const std::string& error) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto now = Clock::now();
  const auto delay = schedule_.ConnectDone(&applier->session, connected, now);
  changed_.notify_all();
  if (!delay) return status_->Connected();
  const bool only = schedule_.connections() == 0;
  if (only) status_->ConnectFailed(error, *delay, now);
  LogRepeated(
      only ? "no connection to the database" : "no further connection to the database",
      {{"subscription", subscription_}, {"error", error}, {"retry_after_ms", delay->count()}});
}

void WorkQueue::ReportDone(const Applier& applier) {
  const std::lock_guard<std::mutex> lock(mutex_);
  schedule_.Done(applier.session, Step::kReport);
}

void WorkQueue::RetryDone(const Applier& applier, const ParkedStep& step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto now = Clock::now();
  const auto delay = parked_->Done(step, now);
  if (delay) status_->Failed("parked keys: " + step.error, *delay, now);
  schedule_.Done(applier.session, Step::kRetryParked);
  changed_.notify_all();
}

std::vector<HeldDeliveries::Letter> WorkQueue::Applied(const Applier& applier,
                                                       const std::vector<Disposition>& dispositions,
                                                       std::vector<Delivery>* batch) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto letters = held_.Return(dispositions, batch, Clock::now());
  schedule_.Done(applier.session, Step::kApply);
  changed_.notify_all();
  return letters;
}

std::optional<std::chrono::milliseconds> WorkQueue::LetterDone(HeldDeliveries::Letter letter) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto now = Clock::now();
  const std::string error = letter.error;
  const auto delay = held_.LetterDone(std::move(letter), now);
  if (delay) status_->Failed("dead-letter topic: " + error, *delay, now);
  changed_.notify_all();
  return delay;
}

void WorkQueue::Wake() {
  { const std::lock_guard<std::mutex> lock(mutex_); }
  changed_.notify_all();
}

void WorkQueue::EndBy(Clock::time_point end) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (end_times_.EndBy(end, Clock::now())) changed_.notify_all();
}

EndTimes WorkQueue::ApplyHeld() {
  std::unique_lock<std::mutex> lock(mutex_);
  ending_ = true;
  const auto wait = [&](Clock::time_point most, auto done) {
    while (!done() && Clock::now() < std::min(most, end_times_.apply_until())) {
      changed_.wait_until(lock, std::min(most, end_times_.apply_until()));
    }
  };
  // Suspended messages are not waited for; they are to be nacked anyway.
  wait(Clock::time_point::max(), [this] {
    // Without a connection nothing becomes less.
    return schedule_.busy() == 0 && (schedule_.connections() == 0 || held_.NoneReady());
  });
  wait(Clock::now() + kLetterTimeout, [this] { return held_.letters() == 0; });
  stopping_ = true;
  changed_.notify_all();
  return end_times_;
}

bool WorkQueue::AwaitNoneBusy(Clock::time_point until) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_until(lock, until, [this] { return schedule_.busy() == 0; });
}

bool WorkQueue::AwaitAllLeft(Clock::time_point until) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_until(lock, until, [this] { return schedule_.running() == 0; });
}

}  // namespace postbox::puller
