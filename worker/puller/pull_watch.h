// What others see of a process that pulls: /metrics, /livez and /readyz over HTTP, and whether the
// watchdog of systemd is told that it is alive. For the main thread, except the server.
#ifndef POSTBOX_WORKER_PULLER_PULL_WATCH_H_
#define POSTBOX_WORKER_PULLER_PULL_WATCH_H_

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/metrics/http_server.h"
#include "worker/puller/database.h"
#include "worker/puller/liveness.h"
#include "worker/puller/pull_health.h"
#include "worker/puller/pull_metrics.h"

namespace postbox::puller {

class PullWatch {
 public:
  using Clock = std::chrono::steady_clock;
  // How long a turn of the main loop may take, beside waits that it announces.
  static constexpr std::chrono::seconds kTurnTime{25};

  // Serves HTTP at this address (listen_address.h). Returns an error; empty if there is none.
  std::string Serve(const std::string& address);
  bool serving() const { return server_ != nullptr; }
  PullMetrics* metrics() { return &metrics_; }

  // The main loop turns, and may wait for the database for so long until the next turn.
  void Turns(Clock::duration wait = Clock::duration::zero());
  // Why the subscription is stuck (liveness.h). `database`, which may be null, is asked about
  // processes of the server that do not answer, for `time` at most.
  std::vector<std::string> Stuck(const std::string& subscription, const ThreadSigns& signs,
                                 Connection* database, Clock::duration time);
  void Found(PullHealth::Lines stuck, PullHealth::Lines not_ready) {
    health_.Found(std::move(stuck), std::move(not_ready));
  }
  // Forgets the subscriptions that do not exist any more.
  void KeepOnly(const std::function<bool(const std::string& name)>& exists);

 private:
  PullMetrics metrics_;
  PullHealth health_;
  std::map<std::string, Liveness> liveness_;     // by subscription
  std::unique_ptr<metrics::HttpServer> server_;  // last: its thread uses the others
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_PULL_WATCH_H_
