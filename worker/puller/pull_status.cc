#include "worker/puller/pull_status.h"

#include <algorithm>
#include <utility>

#include "worker/puller/log.h"

namespace postbox::puller {
namespace {

constexpr size_t kEllipsis = 3;  // Cut() adds it

int64_t Milliseconds(PullStatus::TimePoint::duration time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

}  // namespace

void PullStatus::Succeeded(const StatusNumbers& numbers) {
  const std::lock_guard<std::mutex> lock(mutex_);
  numbers_.applied += numbers.applied;
  numbers_.duplicates += numbers.duplicates;
  numbers_.stale += numbers.stale;
  numbers_.out_of_order += numbers.out_of_order;
  numbers_.dead_letters += numbers.dead_letters;
  retrying_since_.reset();
  not_connected_ = false;
  changed_ = true;
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
  changed_ = true;
}

void PullStatus::Connected() {
  const std::lock_guard<std::mutex> lock(mutex_);
  // What was being retried before it, such as events, is not known to succeed yet.
  if (!std::exchange(not_connected_, false)) return;
  retrying_since_.reset();
  changed_ = true;
}

void PullStatus::NoAnswer(const std::optional<Unanswered>& unanswered) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (unanswered == unanswered_) return;
  unanswered_ = unanswered;
  changed_ = true;
}

void PullStatus::GaveUp() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++numbers_.dead_letters;
  changed_ = true;
}

void PullStatus::AckFailed(const std::string& error, TimePoint now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  numbers_.last_error = Cut(error, kMaxErrorBytes - kEllipsis);
  last_error_at_ = now;
  changed_ = true;
}

void PullStatus::SetStreamState(Stream stream, const std::string& error, TimePoint now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // A stream that is opened again and again is a report each second at most, as everything is.
  if (stream == stream_ && error == numbers_.stream_error) return;
  if (stream != stream_) stream_since_ = now;
  stream_ = stream;
  numbers_.stream_error = error;
  changed_ = true;
}

PullStatus::Stream PullStatus::stream() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stream_;
}

PullStatus::TimePoint PullStatus::NextReport() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (disabled_) return TimePoint::max();
  if (not_stored_) return reported_ + pause_;
  if (changed_) return reported_ + interval_;
  return reported_ + kSignOfLife;
}

StatusNumbers PullStatus::Take(TimePoint now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  changed_ = false;
  reported_ = now;
  pause_ = std::exchange(not_stored_, false)
               ? std::min<std::chrono::milliseconds>(2 * pause_, kLongestPause)
               : interval_;
  StatusNumbers numbers = numbers_;
  if (last_error_at_) numbers.last_error_before_ms = Milliseconds(now - *last_error_at_);
  if (retrying_since_) {
    numbers.retrying_for_ms = Milliseconds(now - *retrying_since_);
    numbers.next_try_in_ms = Milliseconds(next_try_ - now);
  }
  static constexpr const char* kStreams[] = {"connecting", "connected", "reconnecting", "failed"};
  numbers.stream = kStreams[static_cast<int>(stream_)];
  numbers.stream_for_ms = Milliseconds(now - stream_since_);
  numbers.running_for_ms = Milliseconds(now - started_);
  if (unanswered_) {
    numbers.unanswered_for_ms = Milliseconds(now - unanswered_->since);
    numbers.unanswered_backend = unanswered_->backend;
  }
  return numbers;
}

void PullStatus::NotStored() {
  const std::lock_guard<std::mutex> lock(mutex_);
  not_stored_ = true;
}

void PullStatus::Disable() {
  const std::lock_guard<std::mutex> lock(mutex_);
  disabled_ = true;
}

}  // namespace postbox::puller
