// Whether the threads of a subscription get on: what /livez and the watchdog of systemd ask. Plain
// C++: the time is an argument. For one thread.
//
//   - A thread is stuck that has given no sign for `silence`. The I/O thread of the stream is asked
//     for a sign, as is that of the dead-letter topic, if there is one; an applier gives one with
//     each step, and none while it waits for work, for its turn, or for a connection that is being
//     opened. An outage of Pub/Sub or of the database keeps no thread from giving signs.
//   - An applier whose statement is with the server gives none, and a long statement may be in
//     order. So the server is asked about the process that has not answered for `look_after`, over
//     another session, every `look_interval`:
//         it is stopped           nothing will come of it: the applier is stuck
//         it waits for a command  it has answered, and the applier does not read: likewise
//         it runs                 the event takes long; its statement_timeout is the limit
//         the server cannot say   a pooler stands between, or the system has no /proc. Then the
//                                 server should have ended the statement by itself when
//                                 statement_timeout is over; kGrace later it is taken for stopped
//         the server is not asked the database is away, which no restart of the puller repairs
//     What the server says counts when it has said it in each look for `doubt`: a process may be
//     stopped for a moment, and an answer may be on its way.
#ifndef POSTBOX_WORKER_PULLER_LIVENESS_H_
#define POSTBOX_WORKER_PULLER_LIVENESS_H_

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "worker/puller/pull_status.h"

namespace postbox::puller {

// What is seen of the threads of a subscription.
struct ThreadSigns {
  struct Applier {
    // Its last step; in the future while it waits.
    std::chrono::steady_clock::time_point progressed_at;
    std::optional<Unanswered> asked{};  // the statement that waits for its answer
  };
  // How long the thread of the stream has given no sign; none: it has no stream.
  std::optional<std::chrono::steady_clock::duration> stream_silence{};
  std::chrono::steady_clock::duration letters_silence{};  // of the thread of the dead-letter topic
  std::vector<Applier> appliers{};
  std::chrono::milliseconds statement_timeout{0};  // 0: none
};

class Liveness {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  // What the server says of one of its processes.
  enum class Backend { kUnknown, kRuns, kStopped, kAnswered };
  struct Times {
    std::chrono::milliseconds silence = std::chrono::seconds(40);
    std::chrono::milliseconds look_after = std::chrono::seconds(10);
    std::chrono::milliseconds look_interval = std::chrono::seconds(5);
    std::chrono::milliseconds doubt = std::chrono::seconds(8);
  };
  // Longer than an applier waits for an answer before it ends the connection (database.h): it may
  // have waited for a server connection of a pooler, or for a synchronous standby.
  static constexpr std::chrono::seconds kGrace{60};

  explicit Liveness(Times times) : times_(times) {}

  // The statements about whose processes the server is to be asked now. Looked() tells what it has
  // said, unless it did not answer.
  std::vector<Unanswered> Looks(const ThreadSigns& signs, TimePoint now);
  void Looked(const Unanswered& asked, Backend backend, TimePoint now);

  // Why the subscription is stuck, a line for each reason; none: its threads get on.
  std::vector<std::string> Reasons(const ThreadSigns& signs, TimePoint now) const;

 private:
  struct Look {
    TimePoint since;    // of the statement
    TimePoint next;     // look
    TimePoint at{};     // of the last answer
    TimePoint first{};  // since when the server has said so
    Backend backend = Backend::kUnknown;
    bool answered = false;
  };

  std::string ReasonOf(const Unanswered& asked, std::chrono::milliseconds statement_timeout,
                       TimePoint now) const;

  const Times times_;
  std::map<int, Look> looks_;  // by process
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_LIVENESS_H_
