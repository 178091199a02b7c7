#include "worker/puller/pull_status.h"

#include <utility>

#include "worker/puller/log.h"

namespace postbox::puller {
namespace {

constexpr size_t kEllipsis = 3;  // Cut() adds it

int64_t Milliseconds(PullStatus::TimePoint::duration time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

}  // namespace

void PullStatus::Received(size_t messages) {
  const std::lock_guard<std::mutex> lock(mutex_);
  numbers_.received += static_cast<int64_t>(messages);
  timer_.Changed();
}

void PullStatus::Received(size_t messages, std::chrono::milliseconds age, TimePoint now) {
  Received(messages);
  const std::lock_guard<std::mutex> lock(mutex_);
  receive_lag_.Add(messages, age, now);
}

void PullStatus::Nacked(size_t messages) {
  const std::lock_guard<std::mutex> lock(mutex_);
  numbers_.nacked += static_cast<int64_t>(messages);
  timer_.Changed();
}

void PullStatus::Succeeded(const StatusNumbers& numbers, TimePoint::duration took, TimePoint now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  apply_times_.Add(took, now);
  numbers_.applied += numbers.applied;
  numbers_.duplicates += numbers.duplicates;
  numbers_.stale += numbers.stale;
  numbers_.out_of_order += numbers.out_of_order;
  numbers_.dead_letters += numbers.dead_letters;
  numbers_.parked += numbers.parked;
  retrying_since_.reset();
  not_connected_ = false;
  timer_.Changed();
}

void PullStatus::Failed(const std::string& error, std::chrono::milliseconds delay, TimePoint now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  not_connected_ = false;
  CountFailure(error, delay, now);
}

void PullStatus::ConnectFailed(const std::string& error, std::chrono::milliseconds delay,
                               TimePoint now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  not_connected_ = not_connected_ || !retrying_since_;
  CountFailure("no connection to the database: " + error, delay, now);
}

void PullStatus::CountFailure(const std::string& error, std::chrono::milliseconds delay,
                              TimePoint now) {
  ++numbers_.failures;
  numbers_.last_error = Cut(error, kMaxErrorBytes - kEllipsis);
  last_error_at_ = now;
  next_try_ = now + delay;
  if (!retrying_since_) retrying_since_ = now;
  timer_.Changed();
}

void PullStatus::Connected() {
  const std::lock_guard<std::mutex> lock(mutex_);
  // What was being retried before it, such as events, is not known to succeed yet.
  if (!std::exchange(not_connected_, false)) return;
  retrying_since_.reset();
  timer_.Changed();
}

void PullStatus::NoAnswer(const std::optional<Unanswered>& unanswered) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (unanswered == unanswered_) return;
  unanswered_ = unanswered;
  timer_.Changed();
}

void PullStatus::GaveUp() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++numbers_.dead_letters;
  timer_.Changed();
}

void PullStatus::AckFailed(const std::string& error, TimePoint now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  numbers_.last_error = Cut(error, kMaxErrorBytes - kEllipsis);
  last_error_at_ = now;
  timer_.Changed();
}

void PullStatus::SetStreamState(Stream stream, const std::string& error, TimePoint now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // A stream that is opened again and again is a report each second at most, as everything is.
  if (stream == stream_ && error == numbers_.stream_error) return;
  if (stream != stream_) stream_since_ = now;
  stream_ = stream;
  numbers_.stream_error = error;
  timer_.Changed();
}

PullStatus::Stream PullStatus::stream() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stream_;
}

bool PullStatus::retrying() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return retrying_since_.has_value();
}

PullStatus::TimePoint PullStatus::NextReport() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return timer_.Next();
}

StatusNumbers PullStatus::Take(TimePoint now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  timer_.Reported(now);
  StatusNumbers numbers = numbers_;
  numbers.apply_time_p50 = apply_times_.Percentile(0.5, now);
  numbers.apply_time_p99 = apply_times_.Percentile(0.99, now);
  numbers.lag = receive_lag_.Of(now);
  if (const auto behind = receive_lag_.behind_at()) {
    numbers.behind_before_ms = Milliseconds(now - *behind);
  }
  if (last_error_at_) numbers.last_error_before_ms = Milliseconds(now - *last_error_at_);
  if (retrying_since_) {
    numbers.retrying_for_ms = Milliseconds(now - *retrying_since_);
    numbers.next_try_in_ms = Milliseconds(next_try_ - now);
  }
  static constexpr const char* kStreams[] = {"connecting", "connected", "reconnecting", "failed",
                                             "paused"};
  numbers.stream = kStreams[static_cast<int>(stream_)];
  numbers.stream_for_ms = Milliseconds(now - stream_since_);
  numbers.running_for_ms = Milliseconds(now - started_);
  if (unanswered_) {
    numbers.unanswered_for_ms = Milliseconds(now - unanswered_->since);
    numbers.unanswered_backend = unanswered_->backend;
  }
  return numbers;
}

void PullStatus::NotStored(std::string_view sqlstate) {
  const std::lock_guard<std::mutex> lock(mutex_);
  timer_.NotStored();
  if (sqlstate == "42P01" || sqlstate == "42703") timer_.Disable();
}

}  // namespace postbox::puller
