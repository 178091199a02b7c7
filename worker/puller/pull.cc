#include "worker/puller/pull.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "extension/rules/backoff.h"
#include "proto/rules/otlp_endpoint.h"
#include "worker/pubsub/traces/trace_exporter.h"
#include "worker/puller/config.h"
#include "worker/puller/connection_shares.h"
#include "worker/puller/database.h"
#include "worker/puller/ending_runners.h"
#include "worker/puller/failpoint.h"
#include "worker/puller/log.h"
#include "worker/puller/pull_watch.h"
#include "worker/puller/runner.h"
#include "worker/puller/service_manager.h"
#include "worker/puller/signals.h"
#include "worker/puller/status_report.h"

namespace postbox::puller {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kReloadInterval{10};
constexpr std::chrono::milliseconds kLookInterval{500};
// A database that cannot be reached at the start is tried for this long. Later there is no limit.
constexpr std::chrono::seconds kFirstConnectLimit{30};
// How long a process stays in which no subscription works: the status of each shall say why.
constexpr std::chrono::seconds kFailedTime{2};
// A server that has not answered by then is gone, or its process is stopped. The main thread waits
// for no longer: to read the configuration, to store a report, and to remove reports at the end.
constexpr std::chrono::seconds kReadTime{20};
constexpr std::chrono::seconds kReportTime{3};
constexpr std::chrono::seconds kLastReportTime{1};
// For a subscription that is stopped because its configuration has changed.
constexpr std::chrono::seconds kReconfigureGrace{4};
// For the last spans.
constexpr std::chrono::milliseconds kTraceFlushTime{500};
// To connect: a database that cannot be reached is no thread that is stuck.
constexpr std::chrono::seconds kConnectWait = Connection::kConnectTime;

// The configuration can be read on a standby, too.
constexpr TransactionLimits kReading{.read_only = true,
                                     .statement_timeout = std::chrono::seconds(10)};

// A subscription that does not run: it is paused, or something is wrong with it.
struct NotStarted {
  PullStatus::Stream stream = PullStatus::Stream::kFailed;
  std::string why;  // the reason of the pause, or what is wrong
  std::shared_ptr<PullStatus> status{};
};

class Puller {
 public:
  Puller(const PullOptions& options, pubsub::TraceExporter* traces)
      : options_(options), traces_(traces) {
    if (traces_ == nullptr) return;
    watch_.metrics()->CountDroppedSpans([this] { return traces_->Counts().dropped; });
  }

  int Run() {
    // First of all: what is too small for it may keep it from saying anything else.
    LogInfo(
        "opens connections to the database: one for the configuration, one for each subscription, "
        "and up to one for each applier while there is work");
    if (!options_.http.empty()) {
      const std::string error = watch_.Serve(options_.http);
      if (!error.empty()) {
        LogError("cannot serve HTTP", {{"error", error}});
        return 1;
      }
    }
    auto configs = LoadFirst();
    if (!configs) return exit_code_;
    if (configs->good.empty() && configs->wrong.empty() && configs->paused.empty())
      LogWarn("no subscription yet; create one with postbox.create_subscription()");
    do {
      if (configs) Reconcile(*configs);
      TellServiceManager();
    } while (WaitForReload() && (configs = Reload(), true));
    Shutdown();
    return exit_code_;
  }

 private:
  // Nothing if a signal ended the wait, or after an error, which is logged. An error that the
  // database answers is final. A database that cannot be reached, or goes away meanwhile, is tried
  // again.
  std::optional<Subscriptions> LoadFirst() {
    pubsub::Backoff backoff(pubsub::kReconnectBackoff);
    const auto give_up = Clock::now() + kFirstConnectLimit;
    while (true) {
      std::string error;
      watch_.Turns(kConnectWait + ReadWait());
      connection_ =
          Connection::Open(options_.dsn, "postbox pull", kReading, signals_.end_fd(), &error);
      if (connection_) {
        auto configs = LoadConfig(connection_.get(), options_, /*must_exist=*/true, &error);
        if (configs) return configs;
        if (connection_->alive()) {
          LogError("cannot start", {{"error", error}});
          exit_code_ = 1;
          return std::nullopt;
        }
      }
      if (Clock::now() >= give_up) {
        LogError("cannot connect to the database", {{"error", error}});
        exit_code_ = 1;
        return std::nullopt;
      }
      const auto delay = backoff.Next();
      LogWarn("no connection to the database",
              {{"error", error}, {"retry_after_ms", delay.count()}});
      if (signals_.Wait(delay) == Signals::kEnd) return std::nullopt;
    }
  }

  // False if the process should end: after a signal, or when no subscription works any more.
  bool WaitForReload() {
    // A statement would be interrupted, and Shutdown needs the connection to remove reports.
    if (signals_.end_at()) return false;
    const auto until = Clock::now() + TimeOf("reload_interval", kReloadInterval);
    while (Clock::now() < until) {
      watch_.Turns();
      Failpoint("main_loop");
      LogSums();
      SayDroppedSpans();
      StoreLateReports();
      TellServiceManager();
      LetGo();
      if (!AllFailed()) {
        failed_since_.reset();
      } else if (!failed_since_) {
        failed_since_ = Clock::now();
      } else if (Clock::now() >= *failed_since_ + kFailedTime) {
        LogError("no subscription works any more");
        exit_code_ = 1;
        return false;
      }
      switch (signals_.Wait(kLookInterval)) {
        case Signals::kEnd:
          return false;
        case Signals::kReload:
          return true;
        case Signals::kNone:
          if (CanReport() && AnyPauseChanges()) return true;
          break;
      }
    }
    return true;
  }

  // Ready means that messages can come: a stream is open, and none is still being opened for the
  // first time. A subscription that Pub/Sub refuses, or that is tried again, holds up no other.
  // Without any subscription there is nothing to wait for.
  void TellServiceManager() {
    size_t open = 0;
    size_t opening = 0;
    std::string unanswered;
    const bool alive = Watch();
    for (const auto& [name, runner] : runners_) {
      const PullStatus::Stream stream = runner->status()->stream();
      open += stream == PullStatus::Stream::kConnected ? 1 : 0;
      opening += stream == PullStatus::Stream::kConnecting ? 1 : 0;
      if (const auto oldest = runner->LookForAnswers()) {
        unanswered += SayUnanswered(name, *oldest);
      }
    }
    const size_t all = runners_.size() + not_started_.size();
    const size_t paused = CountPaused();
    service_manager_.Status(all == 0
                                ? "no subscription"
                                : std::to_string(open) + " of " + std::to_string(all) +
                                      " subscriptions streaming" + SayPaused(paused) + unanswered);
    if (all == paused || (open > 0 && opening == 0)) service_manager_.Ready();
    if (alive && service_manager_.alive_due()) service_manager_.Alive();
  }

  // Looks whether all threads get on, and what probes are told. Returns whether it is alive.
  bool Watch() {
    if (!watch_.serving() && !service_manager_.watching()) return true;
    PullHealth::Lines stuck;
    PullHealth::Lines not_ready;
    bool any_ready = runners_.empty() && not_started_.size() == CountPaused();
    bool opening = false;
    for (const auto& [name, runner] : runners_) {
      watch_.Turns();
      const std::string subject = "subscription \"" + name + "\": ";
      Connection* const database = CanReport() ? connection_.get() : nullptr;
      for (const std::string& reason : watch_.Stuck(name, runner->Signs(), database, kReportTime)) {
        stuck.push_back(subject + reason);
      }
      const std::string reason = runner->NotReady();
      if (!reason.empty()) not_ready.push_back(subject + reason);
      any_ready = any_ready || reason.empty();
      opening = opening || runner->status()->stream() == PullStatus::Stream::kConnecting;
    }
    // As for READY=1: what is refused, or tried again, holds up no other subscription.
    if (any_ready && !opening) not_ready.clear();
    if (!any_ready && not_ready.empty()) not_ready.emplace_back("no subscription could be started");
    if (!CanReport()) not_ready.emplace_back("not connected to the database");
    const bool alive = stuck.empty();
    watch_.Found(std::move(stuck), std::move(not_ready));
    return alive;
  }

  size_t CountPaused() const {
    return std::count_if(not_started_.begin(), not_started_.end(), [](const auto& entry) {
      return entry.second.stream == PullStatus::Stream::kPaused;
    });
  }
  static std::string SayPaused(size_t paused) {
    return paused == 0 ? "" : ", " + std::to_string(paused) + " paused";
  }

  // For the service manager: a session of the server does not answer a subscription. It may be a
  // statement that takes long, so the watchdog goes on (Runner::Stuck).
  static std::string SayUnanswered(const std::string& name, const Unanswered& unanswered) {
    const auto waited =
        std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - unanswered.since);
    LogRepeated("a session of the server has not answered", {{"subscription", name},
                                                             {"backend", unanswered.backend},
                                                             {"waited_seconds", waited.count()}});
    return "; " + name + ": no answer from process " + std::to_string(unanswered.backend) +
           " of the server";
  }

  // Of subscriptions whose appliers cannot report, and of those that were not started.
  void StoreLateReports() {
    for (const auto& [name, runner] : runners_) {
      if (!CanReport()) return;
      if (const auto numbers = runner->reporter()->TakeLate()) {
        runner->reporter()->Stored(Store(name, runner->config().appliers, *numbers));
      }
    }
    for (const auto& [name, entry] : not_started_) {
      const std::shared_ptr<PullStatus>& status = entry.status;
      if (!CanReport()) return;
      if (status->NextReport() > Clock::now()) continue;
      const QueryResult stored = Store(name, /*appliers=*/0, status->Take(Clock::now()));
      if (!stored.ok()) status->NotStored(stored.sqlstate());
    }
  }

  // A subscription that has parked too much is started again, to pause, and later to go on.
  bool AnyPauseChanges() const {
    return std::any_of(runners_.begin(), runners_.end(),
                       [](const auto& entry) { return entry.second->PauseChanges(); });
  }

  bool CanReport() { return connection_ && connection_->alive(); }

  // Each takes kReportTime at most, and there may be many.
  QueryResult Store(const std::string& name, int appliers, const StatusNumbers& numbers) {
    watch_.Turns();
    connection_->SetDeadline(Clock::now() + kReportTime);
    QueryResult result = StoreReport(connection_.get(), name, appliers, numbers);
    connection_->SetDeadline(Clock::time_point::max());
    // It is opened again to read the configuration.
    if (!connection_->alive()) {
      LogRepeated("the connection for the configuration is lost", {{"error", result.error()}});
    }
    return result;
  }

  void SayDroppedSpans() {
    if (traces_ == nullptr) return;
    const auto dropped = traces_->TakeDropped();
    if (!dropped) return;
    LogWarn("spans of traces were dropped", {{"spans", dropped->spans},
                                             {"spans_in_all", traces_->Counts().dropped},
                                             {"otlp_endpoint", options_.otlp_endpoint},
                                             {"error", dropped->error}});
  }

  // Those that have several connections hear of those that need one.
  void LetGo() {
    if (!shares_.OneEach(Clock::now())) return;
    for (const auto& [name, runner] : runners_) runner->LookAtShares();
  }

  // Nothing if the configuration cannot be read; then the runners stay as they are.
  std::optional<Subscriptions> Reload() {
    std::string error;
    watch_.Turns(ReadWait() + (CanReport() ? Clock::duration::zero() : kConnectWait));
    if (!connection_ || !connection_->alive()) {
      connection_.reset();
      connection_ =
          Connection::Open(options_.dsn, "postbox pull", kReading, signals_.end_fd(), &error);
    }
    if (connection_) {
      connection_->SetDeadline(Clock::now() + TimeOf("read_time", kReadTime));
      auto configs = LoadConfig(connection_.get(), options_, /*must_exist=*/false, &error);
      connection_->SetDeadline(Clock::time_point::max());
      if (configs) {
        reload_error_.clear();
        return configs;
      }
    }
    // Logged once for each error, not every 10 s.
    if (error != reload_error_) LogWarn("the configuration could not be read", {{"error", error}});
    reload_error_ = error;
    return std::nullopt;
  }

  static Clock::duration ReadWait() {
    return TimeOf("read_time", kReadTime) + Connection::kCancelTime;
  }

  void Reconcile(const Subscriptions& subscriptions) {
    watch_.Turns(kReconfigureGrace);
    const std::map<std::string, SubscriptionConfig>& configs = subscriptions.good;
    std::map<std::string, std::shared_ptr<PullStatus>> statuses;  // of those that start again
    std::map<std::string, std::string> over_limit;                // which, of these
    std::vector<std::unique_ptr<Runner>> stopped;
    for (auto it = runners_.begin(); it != runners_.end();) {
      auto config = configs.find(it->first);
      // A subscription that failed is started again: the cause may have been repaired.
      const bool keep = config != configs.end() && config->second == it->second->config() &&
                        !it->second->failed() && !it->second->PauseChanges();
      if (keep) {
        ++it;
        continue;
      }
      if (config != configs.end()) {
        statuses[it->first] = it->second->status();
        over_limit[it->first] = it->second->OverLimit();
        it->second->StartsAgain();
        // Its properties are reported again. The error of a failed one stays until it works.
        if (!it->second->failed()) {
          it->second->status()->SetStreamState(PullStatus::Stream::kConnecting, "", Clock::now());
        }
      }
      stopped.push_back(std::move(it->second));
      it = runners_.erase(it);
    }
    ending_.Add(std::move(stopped), Clock::now() + TimeOf("reconfigure_time", kReconfigureGrace));
    // Shutdown ends the others meanwhile.
    if (!ending_.Wait(signals_.end_fd())) return;
    for (const auto& runner : ending_.Take()) {
      if (!statuses.contains(runner->config().name)) RemoveLeft(*runner);
    }
    std::map<std::string, NotStarted> not_started;
    for (const auto& [name, problem] : subscriptions.wrong) not_started[name].why = problem;
    for (const auto& [name, reason] : subscriptions.paused) {
      not_started[name] = {.stream = PullStatus::Stream::kPaused, .why = reason};
    }
    for (const auto& [name, config] : configs) {
      if (runners_.contains(name)) continue;
      watch_.Turns();
      std::shared_ptr<PullStatus>& status = statuses[name];
      if (!status) status = std::make_shared<PullStatus>();
      auto runner = std::make_unique<Runner>(config, options_.dsn, status,
                                             watch_.metrics()->Of(name, config.subscription),
                                             &shares_, over_limit[name]);
      std::string error;
      if (runner->Start(&error)) {
        runners_.emplace(name, std::move(runner));
      } else {
        not_started[name].why = error;
      }
    }
    NoteNotStarted(std::move(not_started));
    NoteMetrics(subscriptions);
    SayConnections();
  }

  void NoteNotStarted(std::map<std::string, NotStarted> not_started) {
    for (auto& [name, entry] : not_started) {
      const auto known = not_started_.find(name);
      const bool is_new = known == not_started_.end();
      entry.status = is_new ? std::make_shared<PullStatus>() : known->second.status;
      entry.status->SetStreamState(entry.stream, Cut(entry.why, QueryResult::kMaxErrorBytes),
                                   Clock::now());
      // Logged once for each change, not every 10 s.
      if (is_new || known->second.stream != entry.stream || known->second.why != entry.why) {
        LogNotStarted(name, entry);
      }
    }
    for (const auto& [name, entry] : not_started_) {
      if (not_started.contains(name)) continue;
      // What runs now has its own report.
      if (!runners_.contains(name)) {
        Remove(name);
      } else if (entry.stream == PullStatus::Stream::kPaused) {
        LogInfo("subscription is no longer paused", {{"subscription", name}});
      }
    }
    not_started_ = std::move(not_started);
  }

  // Those of subscriptions that do not run, or exist no more, and the projections of all.
  void NoteMetrics(const Subscriptions& subscriptions) {
    watch_.KeepOnly([this](const std::string& name) {
      return runners_.contains(name) || not_started_.contains(name);
    });
    for (const auto& [name, entry] : not_started_) {
      watch_.metrics()->Of(name, "")->SetLook(
          [status = entry.status] { return SubscriptionGauges{.stream = status->stream()}; });
    }
    for (const auto& [name, runner] : runners_) {
      const auto projections = subscriptions.projections.find(name);
      watch_.metrics()
          ->Of(name, runner->config().subscription)
          ->SetProjections(projections == subscriptions.projections.end() ? ProjectionTypes()
                                                                          : projections->second);
    }
  }

  static void LogNotStarted(const std::string& name, const NotStarted& entry) {
    if (entry.stream == PullStatus::Stream::kPaused) {
      LogInfo("subscription is paused", {{"subscription", name}, {"reason", entry.why}});
    } else {
      LogError("subscription could not be started", {{"subscription", name}, {"error", entry.why}});
    }
  }

  // The report of one that could not remove it over its own connection.
  void RemoveLeft(const Runner& ended) {
    if (ended.report_left()) Remove(ended.config().name);
  }
  void Remove(const std::string& name) {
    if (!connection_ || !connection_->alive()) return;
    watch_.Turns();
    connection_->SetDeadline(Clock::now() + kLastReportTime);
    RemoveReport(connection_.get(), name);
    connection_->SetDeadline(Clock::time_point::max());
  }

  // How many connections the subscriptions that run need, and may have, if that has changed.
  void SayConnections() {
    size_t appliers = 0;
    for (const auto& [name, runner] : runners_) appliers += runner->config().appliers;
    const std::pair needed(1 + runners_.size(), 1 + appliers);
    if (std::exchange(needed_, needed) == needed) return;
    LogInfo("connections to the database that are needed now", {{"connections", needed.first},
                                                                {"at_most", needed.second},
                                                                {"subscriptions", runners_.size()},
                                                                {"appliers", appliers}});
  }

  // A subscription that failed does not end the others. When all have failed, the process ends, so
  // that its supervisor notices.
  bool AllFailed() {
    if (runners_.empty()) return !not_started_.empty() && CountPaused() == 0;
    for (const auto& [name, runner] : runners_) {
      if (!runner->failed()) return false;
    }
    return true;
  }

  void Shutdown() {
    service_manager_.Stopping();
    const auto grace = std::chrono::seconds(options_.grace_period_seconds);
    const auto end = signals_.end_at().value_or(Clock::now()) + grace -
                     (traces_ == nullptr ? std::chrono::milliseconds(0) : kTraceFlushTime);
    watch_.Found({}, {"the process ends"});
    watch_.Turns(grace);
    std::vector<std::unique_ptr<Runner>> others;
    for (auto& [name, runner] : runners_) others.push_back(std::move(runner));
    runners_.clear();
    ending_.EndBy(end);
    ending_.Add(std::move(others), end);
    const auto ended = ending_.Take();
    if (connection_) connection_->IgnoreInterrupt();
    for (const auto& runner : ended) RemoveLeft(*runner);
    for (const auto& [name, entry] : not_started_) Remove(name);
    LogSums(/*all=*/true);
  }

  const PullOptions& options_;
  pubsub::TraceExporter* const traces_;  // null: there are no traces
  Signals signals_;
  ServiceManager service_manager_;
  std::unique_ptr<Connection> connection_;
  ConnectionShares shares_;
  std::map<std::string, std::unique_ptr<Runner>> runners_;
  EndingRunners ending_;
  std::string reload_error_;
  std::optional<Clock::time_point> failed_since_;  // all subscriptions
  std::map<std::string, NotStarted> not_started_;
  std::pair<size_t, size_t> needed_;  // connections, as SayConnections has said last
  int exit_code_ = 0;
  PullWatch watch_;
};

// Null without an error: there are no traces.
std::shared_ptr<pubsub::TraceExporter> MakeTraces(const PullOptions& options, std::string* error) {
  pubsub::TraceExporterOptions traces;
  traces.service_name = pubsub::TraceServiceName("postbox-puller");
  if (options.otlp_endpoint.empty() ||
      !pubsub::ParseOtlpEndpoint(options.otlp_endpoint, &traces.endpoint, error) ||
      !pubsub::TraceHeaders(&traces.headers, error)) {
    return nullptr;
  }
  return pubsub::TraceExporter::Create(std::move(traces), error);
}

}  // namespace

int RunPull(const PullOptions& given) {
  TakeCredentials();
  InitLog(given.log_format == "json");
  PullOptions options = given;
  std::string error;
  const std::shared_ptr<pubsub::TraceExporter> traces = MakeTraces(options, &error);
  // What runs without traces is better than what does not run.
  if (!error.empty()) LogError("there are no traces", {{"error", error}});
  options.spans = traces;
  const int code = Puller(options, traces.get()).Run();
  if (traces != nullptr) traces->Stop(kTraceFlushTime);
  FinishLog();
  if (Connection::CallsLeft()) {
    std::fflush(nullptr);
    std::_Exit(code);
  }
  return code;
}

}  // namespace postbox::puller
