// A thread that does something again and again as long as the object lives.
#ifndef POSTBOX_WORKER_EMULATOR_TICKER_H_
#define POSTBOX_WORKER_EMULATOR_TICKER_H_

#include <functional>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace postbox::emulator {

class Ticker {
 public:
  Ticker(absl::Duration pause, std::function<void()> tick)
      : thread_([this, pause, tick = std::move(tick)] {
          while (!stop_.WaitForNotificationWithTimeout(pause)) tick();
        }) {}
  ~Ticker() {
    stop_.Notify();
    thread_.join();
  }
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

 private:
  absl::Notification stop_;
  std::thread thread_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_TICKER_H_
