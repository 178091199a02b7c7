// Tells a broken consumer from events that are at fault, for each event type of a subscription.
//
// A handler or projection may fail with errors that look like those of an event: a column was
// renamed in a function, a partition or a referenced row is missing, each event raises P0001. What
// other events of the type do tells the two apart:
//
//   - An event is at fault if another event of its type was applied after it had failed, and it
//     failed once more after that. Only the effects of transactions that began after the failure
//     count: one that began earlier may have used the function as it was before. Outcomes that call
//     no handler and write no row (`duplicate`, `stale`) prove nothing.
//   - The consumer is broken if events of kOtherKeys other keys failed with the same SQLSTATE, and
//     no event of the type was applied for `doubt` meanwhile. The type is suspended. Two keys
//     may fail by coincidence. If three fail and none succeeds for a second, there are nearly no
//     healthy events.
//   - If no other event of the type is tried, nothing can be known. Then an event is at fault when
//     it has failed for `evidence`. Until then it is not given up, whatever max_attempts is: the
//     first events that a broken consumer meets would be lost.
//
// A type whose projection or handler is paused is suspended with the first event that meets it.
//
// While a type is suspended its events are held (held_deliveries.h), and one of them at a time is
// tried: the probe. The pause after each probe doubles up to kLongestPause. The first event that is
// applied ends the suspension. Attempts from before its end do not count: after it an event has all
// of its max_attempts again.
//
// Marks order what happens in the threads of the appliers: a transaction that begins and a failure
// have one each, ascending.
//
// Memory is bounded: kMostTypes types with kMostKeys keys each. What is forgotten first is a type
// that is not suspended. Thread-safe. The time is passed in.
#ifndef POSTBOX_WORKER_PULLER_CONSUMER_HEALTH_H_
#define POSTBOX_WORKER_PULLER_CONSUMER_HEALTH_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace postbox::puller {

class ConsumerHealth {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Milliseconds = std::chrono::milliseconds;
  using Mark = uint64_t;  // 0: none
  static constexpr size_t kOtherKeys = 2;
  static constexpr size_t kMostKeys = 16;
  static constexpr size_t kMostTypes = 1000;
  // In bytes. Types with longer names are not suspended; of a key the beginning counts.
  static constexpr size_t kLongestName = 256;
  static constexpr Milliseconds kDoubt{1000};
  static constexpr Milliseconds kEvidence{10000};
  // Everything goes on 10 s after a repair at the latest, even if the next probe is an event that
  // is itself at fault.
  static constexpr Milliseconds kLongestPause{3000};

  struct Times {
    Milliseconds first_pause{1000};
    Milliseconds doubt = kDoubt;
    Milliseconds evidence = kEvidence;
  };
  struct Failure {
    std::string_view type;
    std::string_view key;
    std::string_view sqlstate;
    std::string_view error;
    bool paused = false;  // what takes the type is: it is suspended immediately
  };
  struct Verdict {
    Mark mark = 0;             // of the failure
    Mark applied = 0;          // of the latest transaction that applied an event of the type
    Mark counts_from = 0;      // attempts with earlier marks do not count
    size_t others = 0;         // keys that failed likewise since then
    bool suspended = false;    // the type is: the failure is not the event's
    bool begins = false;       // with this failure
    Milliseconds retry_in{0};  // if suspended
  };
  struct Suspension {
    std::string type{};
    std::string sqlstate{};
    std::string error{};
    TimePoint since{};
  };

  explicit ConsumerHealth(Times times) : times_(times) {}

  // A transaction begins.
  Mark Begin() { return ++clock_; }
  // It was committed with an event of the type. `effect`: a handler was called or a row written, or
  // nothing takes the type. Returns the suspension that this ends.
  std::optional<Suspension> Settled(std::string_view type, bool effect, Mark begun, TimePoint now);
  // No event has failed. Then the other calls need not be made.
  bool Quiet() const { return !any_; }
  // An event of the type failed through an error that looks like its own.
  Verdict Failed(const Failure& failure, TimePoint now);
  // Whether an event is at fault that has used up its attempts. `previous`: the mark of the attempt
  // before the last one.
  bool IsEventsFault(const Verdict& verdict, Mark previous, TimePoint::duration failing_for) const;

  bool Suspended(std::string_view type) const;
  // When the next event of the type may be tried: the past if it is not suspended.
  TimePoint NextProbe(std::string_view type) const;
  // If it is time, the caller tries an event of the type, which is suspended.
  bool TakeProbe(std::string_view type, TimePoint now);
  // The one that began first comes first.
  std::vector<Suspension> Suspensions() const;

 private:
  struct FailedKey {
    std::string key;
    std::string sqlstate;
    Mark mark;
  };
  struct Type {
    std::list<FailedKey> failed;  // since an event was applied; the latest comes last
    TimePoint failing_since{};    // if there are any
    Mark applied = 0;
    Mark last_failure = 0;
    Mark resumed = 0;  // the end of the last suspension
    std::optional<Suspension> suspension{};
    Mark suspended = 0;  // the mark of the suspension
    Milliseconds pause{0};
    TimePoint next_probe{};
    bool probing = false;
  };

  // With mutex_ held. Null if there is no room.
  Type* Know(std::string_view type);

  const Times times_;
  std::atomic<Mark> clock_ = 0;
  std::atomic<bool> any_ = false;  // in types_
  mutable std::mutex mutex_;
  std::map<std::string, Type, std::less<>> types_;
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_CONSUMER_HEALTH_H_
