// What a puller reports of one subscription, in postbox.subscription_status.
//
// The appliers count here. One of them stores the numbers, over its own connection, when a report
// is due (report_timer.h). So a subscription without events costs the database next to nothing. If
// no applier is free for it, or has a connection, the main thread does, over that of the
// configuration. Thread-safe.
#ifndef POSTBOX_WORKER_PULLER_PULL_STATUS_H_
#define POSTBOX_WORKER_PULLER_PULL_STATUS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/puller/apply_times.h"
#include "worker/puller/key_queues.h"
#include "worker/puller/receive_lag.h"
#include "worker/puller/report_timer.h"

namespace postbox::puller {

// A statement without an answer: since when, and the process id of the server's backend.
struct Unanswered {
  std::chrono::steady_clock::time_point since;
  int backend = 0;
  bool operator==(const Unanswered&) const = default;
};

struct StatusNumbers {
  int64_t running_for_ms = 0;
  int64_t applied = 0;
  int64_t ignored = 0;  // of the applied ones: nothing takes their types
  int64_t duplicates = 0;
  int64_t stale = 0;
  int64_t out_of_order = 0;
  int64_t dead_letters = 0;
  int64_t parked = 0;
  int64_t failures = 0;
  int64_t received = 0;
  int64_t nacked = 0;
  // In milliseconds before now, or after it.
  std::optional<int64_t> retrying_for_ms{};
  std::optional<int64_t> next_try_in_ms{};
  std::optional<int64_t> last_error_before_ms{};
  std::string last_error{};
  // The stream: 'connecting', 'connected', 'reconnecting', 'failed' or 'paused', since when, and
  // the error of 'reconnecting' and 'failed' or the reason of the pause.
  std::string stream{};
  int64_t stream_for_ms = 0;
  std::string stream_error{};
  int64_t conflicts = 0;  // in the last minute (apply_gate.h)
  std::optional<int64_t> unanswered_for_ms{};
  int unanswered_backend = 0;
  // The event types that are suspended, and of the first of them since when, and its last error
  // (consumer_health.h).
  std::vector<std::string> suspended_types{};
  int64_t suspended_for_ms = 0;
  std::string suspended_error{};
  // Messages that are not acked yet, those of each event type that wait, and how long batches took.
  int64_t in_hand = 0;
  std::map<std::string, WaitingEvents, std::less<>> waiting{};
  std::optional<ApplyTimes::Microseconds> apply_time_p50{};
  std::optional<ApplyTimes::Microseconds> apply_time_p99{};
  ReceiveLag::Numbers lag{};
  std::optional<int64_t> behind_before_ms{};
};

class PullStatus {
 public:
  using TimePoint = ReportTimer::TimePoint;
  // Of last_error. It stays when the event is gone that it is about, and may quote its values.
  static constexpr size_t kMaxErrorBytes = 500;

  // Messages have come, or were given back.
  void Received(size_t messages);
  // The oldest of them had been published so long before. `messages` as for Received.
  void Received(size_t messages, std::chrono::milliseconds age, TimePoint now);
  void Nacked(size_t messages);
  // What became of a batch, which took so long.
  void Succeeded(const StatusNumbers& numbers, TimePoint::duration took, TimePoint now);
  // An attempt failed and is repeated after `delay`.
  void Failed(const std::string& error, std::chrono::milliseconds delay, TimePoint now);
  void GaveUp();
  // No connection to the database could be opened, and it is tried again after `delay`.
  void ConnectFailed(const std::string& error, std::chrono::milliseconds delay, TimePoint now);
  // There is one again: what could not be connected is over.
  void Connected();
  // The statement that has waited for an answer for longest, if any has waited for too long.
  void NoAnswer(const std::optional<Unanswered>& unanswered);
  // An ack or an extension of a lease was refused. Events go on being applied, and come again.
  void AckFailed(const std::string& error, TimePoint now);
  // The stream of messages: it is connected, or ended with `error` and is opened again, or not; or
  // there is none for the reason `error`.
  enum class Stream { kConnecting, kConnected, kReconnecting, kFailed, kPaused };
  void SetStreamState(Stream stream, const std::string& error, TimePoint now);
  Stream stream() const;
  bool retrying() const;

  // When the next report is due.
  TimePoint NextReport() const;
  // The numbers to report now.
  StatusNumbers Take(TimePoint now);
  // The last report did not get through. There will be no more if the database, with another
  // release of the extension, lacks the table or a column.
  void NotStored(std::string_view sqlstate);

 private:
  // With mutex_ held.
  void CountFailure(const std::string& error, std::chrono::milliseconds delay, TimePoint now);

  mutable std::mutex mutex_;
  StatusNumbers numbers_;
  std::optional<TimePoint> retrying_since_;
  TimePoint next_try_{};
  std::optional<TimePoint> last_error_at_;
  bool not_connected_ = false;  // that is what is retried
  std::optional<Unanswered> unanswered_;
  const TimePoint started_ = std::chrono::steady_clock::now();
  Stream stream_ = Stream::kConnecting;
  TimePoint stream_since_ = std::chrono::steady_clock::now();
  ReportTimer timer_;
  ApplyTimes apply_times_;
  ReceiveLag receive_lag_;
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_PULL_STATUS_H_
