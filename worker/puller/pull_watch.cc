#include "worker/puller/pull_watch.h"

#include <utility>

#include "worker/metrics/listen_address.h"
#include "worker/metrics/metric_rows.h"
#include "worker/puller/failpoint.h"
#include "worker/puller/log.h"

namespace postbox::puller {
namespace {

// $1: the process; $2: since how many milliseconds it has been asked. A session of the role itself
// shows its state; that a process is stopped is in no view.
constexpr char kLook[] = R"(
    SELECT CASE WHEN s.stopped IS NULL THEN 'unknown' WHEN s.stopped THEN 'stopped'
                WHEN EXISTS (SELECT FROM pg_stat_activity a
                              WHERE a.pid = $1::int AND a.state LIKE 'idle%'
                                AND a.state_change >
                                    clock_timestamp() - $2::float * interval '1 ms')
                THEN 'answered' ELSE 'runs' END
      FROM postbox.session_is_stopped($1::int) AS s(stopped))";

Liveness::Times LivenessTimes() {
  const Liveness::Times usual;
  return {.silence = TimeOf("stuck_time", usual.silence),
          .look_after = TimeOf("look_after", usual.look_after),
          .look_interval = TimeOf("look_interval", usual.look_interval),
          .doubt = TimeOf("stopped_time", usual.doubt)};
}

// Nothing if the server does not answer.
std::optional<Liveness::Backend> Look(Connection* database, const Unanswered& asked) {
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - asked.since);
  const QueryResult said =
      database->Execute(kLook, {Parameter::Text(std::to_string(asked.backend)),
                                Parameter::Text(std::to_string(waited.count()))});
  // The extension is of a release that does not have the function.
  if (said.sqlstate() == "42883") return Liveness::Backend::kUnknown;
  if (!said.ok() || said.rows() != 1) return std::nullopt;
  const std::string state = said.text(0, 0);
  if (state == "stopped") return Liveness::Backend::kStopped;
  if (state == "answered") return Liveness::Backend::kAnswered;
  return state == "runs" ? Liveness::Backend::kRuns : Liveness::Backend::kUnknown;
}

metrics::HttpAnswer AnswerOf(const char* good, const PullHealth::Lines& problems) {
  if (problems.empty()) return {.body = std::string(good) + "\n"};
  metrics::HttpAnswer answer{.status = 503};
  for (const std::string& line : problems) answer.body += line + "\n";
  return answer;
}

}  // namespace

std::string PullWatch::Serve(const std::string& address) {
  const auto where = metrics::ParseListenAddress(address);
  if (!where) return "\"" + address + "\" is not HOST:PORT, [ADDRESS]:PORT or :PORT";
  std::map<std::string, metrics::HttpServer::Handler> handlers;
  handlers["/metrics"] = [this] {
    return metrics::HttpAnswer{.body = metrics::MetricsText(metrics_.Collect()),
                               .type = metrics::kMetricsType};
  };
  handlers["/livez"] = [this] { return AnswerOf("alive", health_.NotAlive(Clock::now())); };
  handlers["/readyz"] = [this] { return AnswerOf("ready", health_.NotReady()); };
  std::string error;
  server_ = metrics::HttpServer::Start(*where, std::move(handlers), &error);
  if (!server_) return error;
  LogInfo("serves /metrics, /livez and /readyz",
          {{"address", metrics::FormatListenAddress(server_->address())}});
  return "";
}

void PullWatch::Turns(Clock::duration wait) {
  const auto now = Clock::now();
  health_.TurnsBy(now + TimeOf("turn_time", kTurnTime) + wait, now);
}

std::vector<std::string> PullWatch::Stuck(const std::string& subscription, const ThreadSigns& signs,
                                          Connection* database, Clock::duration time) {
  Liveness& liveness = liveness_.try_emplace(subscription, LivenessTimes()).first->second;
  const auto until = Clock::now() + time;
  for (const Unanswered& asked : liveness.Looks(signs, Clock::now())) {
    if (database == nullptr || !database->alive() || Clock::now() >= until) break;
    database->SetDeadline(until);
    const auto backend = Look(database, asked);
    database->SetDeadline(Clock::time_point::max());
    if (backend) liveness.Looked(asked, *backend, Clock::now());
  }
  std::vector<std::string> reasons = liveness.Reasons(signs, Clock::now());
  for (const std::string& reason : reasons) {
    LogRepeated("no progress; /livez fails, and the watchdog is no longer notified",
                {{"subscription", subscription}, {"reason", reason}});
  }
  return reasons;
}

void PullWatch::KeepOnly(const std::function<bool(const std::string& name)>& exists) {
  metrics_.KeepOnly(exists);
  std::erase_if(liveness_, [&exists](const auto& entry) { return !exists(entry.first); });
}

}  // namespace postbox::puller
