#include "worker/puller/receive_lag.h"

namespace postbox::puller {

void ReceiveLag::Add(size_t messages, std::chrono::milliseconds age, TimePoint now) {
  if (samples_.empty() || now - samples_.back().at >= kSample) {
    while (samples_.size() > 1 && now - samples_[1].at >= kWindow) samples_.pop_front();
    samples_.push_back({now, received_, lag_.value_or(age)});
  }
  received_ += static_cast<int64_t>(messages);
  lag_ = age;
  if (age > kBehind) behind_at_ = now;
}

ReceiveLag::Numbers ReceiveLag::Of(TimePoint now) const {
  Numbers numbers;
  if (!lag_) return numbers;
  numbers.lag_ms = lag_->count();
  const Sample* first = nullptr;
  for (const Sample& sample : samples_) {
    if (now - sample.at > kWindow) continue;
    first = &sample;
    break;
  }
  if (first == nullptr) return numbers;
  const int64_t passed =
      std::chrono::duration_cast<std::chrono::milliseconds>(now - first->at).count();
  if (passed < std::chrono::milliseconds(kSample).count()) return numbers;
  numbers.events_per_1000_s = (received_ - first->received) * 1'000'000 / passed;
  numbers.catch_up_per_1000 = (first->lag - *lag_).count() * 1000 / passed;
  return numbers;
}

}  // namespace postbox::puller
