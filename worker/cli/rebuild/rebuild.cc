#include "worker/cli/rebuild/rebuild.h"

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "worker/cli/base/open_place.h"
#include "worker/cli/base/operator_session.h"
#include "worker/cli/rebuild/event_source.h"
#include "worker/cli/rebuild/pull_process.h"
#include "worker/puller/database.h"
#include "worker/puller/log.h"
#include "worker/puller/signals.h"

namespace postbox::cli {
namespace {

using puller::Connection;
using puller::LogInfo;
using puller::LogWarn;
using puller::Parameter;
using puller::QueryResult;
using Clock = std::chrono::steady_clock;

constexpr int kInterrupted = 3;
constexpr std::chrono::seconds kLookInterval{1};
constexpr std::chrono::seconds kReportInterval{10};
constexpr std::chrono::seconds kFinishInterval{5};
constexpr puller::TransactionLimits kLimits{.statement_timeout = std::chrono::seconds(60)};
// To replace many rows takes its time.
constexpr puller::TransactionLimits kFinishLimits{.statement_timeout = std::chrono::seconds(0)};

// The last rebuild of the target, if there was one.
constexpr char kLook[] =
    "SELECT r.state, coalesce(r.subscription, ''), coalesce(s.subscription, ''), "
    "coalesce(r.pubsub_subscription, ''), r.home = postbox.this_database(), r.projection "
    "FROM postbox.rebuild r "
    "LEFT JOIN postbox.subscription s ON s.name = r.subscription "
    "WHERE r.projection = $1 OR r.target = (SELECT p.target FROM postbox.projection p "
    "WHERE p.name = $1 AND p.target <> 0) ORDER BY r.state = 'active' DESC LIMIT 1";
// The Pub/Sub subscriptions of the inbox, and a suffix for that of the rebuild.
constexpr char kLive[] =
    "SELECT s.subscription, left(md5(current_database() || '/' || p.target::text), 8) "
    "FROM postbox.projection p LEFT JOIN postbox.subscription s ON s.inbox = p.inbox "
    "WHERE p.name = $1";
constexpr char kDryRun[] =
    "SELECT shadow, shadow_inbox, shadow_subscription, target_rows FROM "
    "postbox.rebuild_projection($1, $2, $3, $4, dry_run => true)";
// What Pub/Sub has for it is noted in the same transaction.
constexpr char kBegin[] =
    "SELECT r.shadow_subscription, postbox.note_rebuild($1, 'pubsub_subscription', $6) FROM "
    "postbox.rebuild_projection($1, $2, $3, $4, source => $5) r";
constexpr char kStatus[] =
    "SELECT s.state, coalesce(s.reason, ''), s.caught_up, coalesce(s.received, 0), "
    "coalesce(s.applied, 0), coalesce(s.stale, 0), coalesce(s.failures, 0), "
    "coalesce(s.events_per_second, 0), coalesce(s.lag::text, ''), "
    "coalesce(s.time_left_estimated::text, ''), coalesce(s.last_error, '') "
    "FROM postbox.rebuild_status s WHERE s.projection = $1";
constexpr char kFinish[] = "SELECT postbox.finish_rebuild($1, lagging => $2)";
constexpr char kResult[] =
    "SELECT s.updated, s.inserted, s.deleted, s.absent_rows, s.incomplete, "
    "coalesce(s.incomplete_key, ''), s.lagging, coalesce(s.lagging_key, ''), s.locked_for::text "
    "FROM postbox.rebuild_status s WHERE s.projection = $1";

class RebuildRun {
 public:
  RebuildRun(const puller::PullOptions& pull, const RebuildOptions& options)
      : pull_(pull), options_(options), projection_(options.projection) {}

  int Run() {
    std::string error;
    if (!Reconnect(&error)) return Fail(error, ConnectionRemedy(error));
    PlaceOptions place;
    place.project = pull_.project;
    place.endpoint = pull_.endpoint;
    place.dsn = pull_.dsn;
    broker_ = Connect(place);
    if (!broker_) return 1;
    source_.emplace(&*broker_, &options_);
    if (!Look()) return 1;
    if (options_.cancel) return Cancel();
    if (state_ == "done" && !left_.empty()) {
      LogInfo("the rebuild was done by an earlier run");
      return RemoveLeft() ? 0 : 1;
    }
    if (state_ != "active") {
      if (!RemoveLeft()) return 1;
      const int code = Begin();
      if (code >= 0) return code;
    } else {
      LogInfo("the rebuild goes on", {{"projection", projection_}});
    }
    if (subscription_.empty()) {
      return Fail("the rebuild was begun without a Pub/Sub subscription",
                  "finish it with postbox.finish_rebuild, or cancel it with --cancel");
    }
    return Follow();
  }

 private:
  bool Reconnect(std::string* error) {
    connection_ =
        Connection::Open(pull_.dsn, "postbox pull --rebuild", kLimits, signals_.end_fd(), error);
    return connection_ != nullptr;
  }

  // An error is printed.
  std::optional<QueryResult> Query(const char* sql, const std::vector<Parameter>& more = {},
                                   const puller::TransactionLimits* limits = nullptr) {
    std::vector<Parameter> parameters = {Parameter::Text(projection_)};
    parameters.insert(parameters.end(), more.begin(), more.end());
    QueryResult result = connection_->Execute(sql, parameters, limits);
    if (result.ok()) return result;
    const bool missing = result.sqlstate() == "42P01" || result.sqlstate() == "3F000";
    Fail(result.error(),
         missing ? "run CREATE EXTENSION postbox, or ALTER EXTENSION postbox UPDATE" : "");
    return std::nullopt;
  }

  bool Look() {
    const auto found = Query(kLook);
    if (!found) return false;
    state_.clear();
    if (found->rows() == 0) return true;
    state_ = found->text(0, 0);
    // It may have begun under the name of another projection of the target.
    if (state_ == "active") projection_ = found->text(0, 5);
    // The Pub/Sub subscription is that of the original.
    if (found->text(0, 4) != "t" && state_ == "active") {
      Fail("the rebuild was begun in a database of which this one is a copy",
           "run SELECT postbox.cancel_rebuild('" + options_.projection + "')");
      return false;
    }
    if (found->text(0, 4) != "t") return true;
    subscription_ = found->text(0, 1);
    left_ = found->text(0, 3);
    return true;
  }

  // Deletes the Pub/Sub subscription that was created for the rebuild, and says so in its row.
  bool RemoveLeft() {
    if (left_.empty()) return true;
    if (const Trouble bad = source_->Delete(left_); !bad.none()) {
      Fail(bad.message, bad.remedy);
      return false;
    }
    if (!Query("SELECT postbox.note_rebuild($1, 'pubsub_subscription', NULL)")) return false;
    LogInfo("the Pub/Sub subscription of the rebuild was deleted", {{"subscription", left_}});
    left_.clear();
    return true;
  }

  int Cancel() {
    if (state_ == "active") {
      if (!Query("SELECT postbox.cancel_rebuild($1, 'postbox pull --cancel')")) return 1;
      LogInfo("the rebuild was cancelled", {{"projection", options_.projection}});
    }
    if (!left_.empty()) return RemoveLeft() ? 0 : 1;
    // What a run has created that was killed before it began.
    const auto live = Query(kLive);
    if (!live) return 1;
    if (live->rows() != 1 || live->null(0, 0)) return 0;
    const Trouble bad = source_->Delete(NameFor(live->text(0, 0), live->text(0, 1)));
    return bad.none() ? 0 : Fail(bad.message, bad.remedy);
  }

  // <live>.rebuild-<suffix>, at most 255 characters of it behind the project.
  std::string NameFor(const std::string& live, const std::string& suffix) const {
    constexpr size_t kLongest = 255;
    const std::string full = broker_->Name("subscriptions", live);
    const size_t slash = full.rfind('/') + 1;
    const std::string end = ".rebuild-" + suffix;
    return full.substr(0, slash) + full.substr(slash, kLongest - end.size()) + end;
  }

  std::string SourceText() const {
    if (!options_.since.empty()) return "messages since " + options_.since;
    if (!options_.snapshot.empty()) return "snapshot " + options_.snapshot;
    if (options_.now) return "messages from now on";
    return "subscription " + pull_.subscriptions[0];
  }

  Parameter Keys() const {
    if (options_.keys.empty()) return Parameter::Text(std::nullopt);
    return Parameter::Array(puller::kTextOid, {options_.keys.begin(), options_.keys.end()});
  }

  // The full names of the Pub/Sub subscription to use, and of the live one if that is to be like
  // it; empty after an error, which is printed.
  bool ChooseNames(std::string* live, std::string* name) {
    if (!pull_.subscriptions.empty()) {
      *name = broker_->Name("subscriptions", pull_.subscriptions[0]);
      return !name->empty();
    }
    const auto found = Query(kLive);
    if (!found) return false;
    if (found->rows() == 0) {
      Fail("projection \"" + options_.projection + "\" does not exist",
           "postbox.projection lists the projections");
      return false;
    }
    if (found->rows() > 1 || found->null(0, 0)) {
      Fail(found->rows() > 1 ? "several subscriptions feed the inbox of the projection"
                             : "no subscription feeds the inbox of the projection",
           "create a Pub/Sub subscription for the rebuild, and name it with --subscription");
      return false;
    }
    *live = broker_->Name("subscriptions", found->text(0, 0));
    *name = NameFor(found->text(0, 0), found->text(0, 1));
    return !live->empty();
  }

  // -1: it has begun. Otherwise the exit status.
  int Begin() {
    std::string live, name;
    if (!ChooseNames(&live, &name)) return 1;
    const std::vector<Parameter> arguments = {Parameter::Text(name), Keys(),
                                              Parameter::Text(options_.absent)};
    const auto plan = Query(kDryRun, arguments);
    if (!plan) return 1;
    if (options_.dry_run) {
      std::printf(
          "would create table %s, inbox %s, subscription %s and %s %s\n"
          "the target has %s rows\n",
          plan->text(0, 0).c_str(), plan->text(0, 1).c_str(), plan->text(0, 2).c_str(),
          live.empty() ? "use Pub/Sub subscription" : "Pub/Sub subscription", name.c_str(),
          plan->text(0, 3).c_str());
      return 0;
    }
    const Trouble bad = live.empty() ? source_->Take(name) : source_->Create(live, name);
    if (!bad.none()) return Fail(bad.message, bad.remedy);
    std::vector<Parameter> more = arguments;
    more.push_back(Parameter::Text(SourceText()));
    if (live.empty()) {
      more.push_back(Parameter::Text(std::nullopt));
    } else {
      more.push_back(Parameter::Text(name));
    }
    const auto begun = Query(kBegin, more);
    if (!begun) {
      if (!live.empty()) DeleteUnlessUsed(name);
      return 1;
    }
    subscription_ = begun->text(0, 0);
    if (!live.empty()) left_ = name;
    LogInfo("the rebuild has begun", {{"projection", options_.projection},
                                      {"source", SourceText()},
                                      {"pubsub_subscription", name}});
    return -1;
  }

  // Another run may have begun the rebuild meanwhile, with the same name. And if the connection
  // broke, it may have begun: the next run sees it.
  void DeleteUnlessUsed(const std::string& name) {
    if (!connection_->alive() || !Look() || (state_ == "active" && left_ == name)) return;
    source_->Delete(name);
  }

  int Follow() {
    auto process = PullProcess::Start(pull_, subscription_);
    if (!process) return Fail("cannot start postbox pull", "");
    const int code = Watch(&*process);
    process->Stop(std::chrono::seconds(pull_.grace_period_seconds + 2));
    if (code == kInterrupted) LogInfo("interrupted; run the same command to go on");
    if (code != kStopped) return code;
    // It is done or cancelled.
    const bool removed = RemoveLeft();
    if (!removed) return 1;
    return state_ == "done" ? Report() : 1;
  }

  // kStopped when there is no rebuild any more, and otherwise the exit status.
  int Watch(PullProcess* process) {
    auto next_report = Clock::now();
    auto next_finish = Clock::now();
    while (true) {
      if (signals_.Wait(kLookInterval) == puller::Signals::kEnd) return kInterrupted;
      int status = 0;
      if (!process->Running(&status)) {
        return StillActive() ? Fail("postbox pull has ended with status " + std::to_string(status),
                                    "run the same command again to go on")
                             : kStopped;
      }
      std::string error;
      if (!connection_->alive() && !Reconnect(&error)) {
        puller::LogRepeated("no connection to the database", {{"error", error}});
        continue;
      }
      const QueryResult now = connection_->Execute(kStatus, {Parameter::Text(projection_)});
      if (!now.ok()) {
        puller::LogRepeated("the status of the rebuild cannot be read", {{"error", now.error()}});
        continue;
      }
      state_ = now.rows() == 0 ? "cancelled" : now.text(0, 0);
      if (state_ == "done") return kStopped;
      if (state_ == "cancelled") {
        LogWarn("the rebuild was cancelled");
        return kStopped;
      }
      if (Clock::now() >= next_report) {
        LogProgress(now);
        next_report = Clock::now() + kReportInterval;
      }
      if (now.text(0, 2) != "t" || options_.now || Clock::now() < next_finish) continue;
      next_finish = Clock::now() + kFinishInterval;
      if (const int code = Finish(); code >= 0) return code;
    }
  }

  bool StillActive() { return Look() && state_ == "active"; }

  static void LogProgress(const QueryResult& now) {
    puller::Fields fields = {
        {"state", now.text(0, 0)},       {"received", now.integer(0, 3)},
        {"applied", now.integer(0, 4)},  {"stale", now.integer(0, 5)},
        {"failures", now.integer(0, 6)}, {"events_per_second", now.text(0, 7)}};
    const auto add = [&](const char* name, int column) {
      if (!now.text(0, column).empty()) fields[name] = now.text(0, column);
    };
    add("lag", 8);
    add("time_left_estimated", 9);
    add("reason", 1);
    add("last_error", 10);
    LogInfo("rebuild", fields);
  }

  // -1: not yet.
  int Finish() {
    const QueryResult finished = connection_->Execute(
        kFinish, {Parameter::Text(projection_), Parameter::Text(options_.lagging)}, &kFinishLimits);
    if (!finished.ok()) {
      if (finished.sqlstate().empty() || !connection_->alive()) return -1;  // it is looked again
      connection_->Execute("SELECT postbox.note_rebuild($1, 'error', $2)",
                           {Parameter::Text(projection_),
                            Parameter::Text(finished.sqlstate() + ": " + finished.error())});
      return Fail("the rows cannot be replaced: " + finished.error(),
                  "remove the cause, and run the same command again; or cancel the rebuild with "
                  "--cancel");
    }
    const std::string outcome = finished.text(0, 0);
    if (outcome == "done") {
      state_ = "done";
      return kStopped;
    }
    LogInfo("the rows cannot be replaced yet", {{"outcome", outcome}});
    return -1;
  }

  int Report() {
    const auto result = Query(kResult);
    if (!result || result->rows() == 0) return 1;
    puller::Fields fields = {
        {"updated", result->integer(0, 0)},    {"inserted", result->integer(0, 1)},
        {"deleted", result->integer(0, 2)},    {"absent", result->integer(0, 3)},
        {"incomplete", result->integer(0, 4)}, {"lagging", result->integer(0, 6)},
        {"writers_waited", result->text(0, 8)}};
    if (!result->text(0, 5).empty()) fields["incomplete_key"] = result->text(0, 5);
    if (!result->text(0, 7).empty()) fields["lagging_key"] = result->text(0, 7);
    LogInfo("the rows were replaced", fields);
    return 0;
  }

  static constexpr int kStopped = 100;

  const puller::PullOptions& pull_;
  const RebuildOptions& options_;
  puller::Signals signals_;
  std::unique_ptr<Connection> connection_;
  std::optional<OpenPlace> broker_;
  std::optional<EventSource> source_;
  std::string projection_;    // under whose name it is or will be
  std::string state_;         // of the rebuild; empty: there was none
  std::string subscription_;  // the row of postbox.subscription
  std::string left_;          // the Pub/Sub subscription that was created for it
};

}  // namespace

int RunRebuild(const puller::PullOptions& pull, const RebuildOptions& options) {
  puller::InitLog(pull.log_format == "json");
  const int code = RebuildRun(pull, options).Run();
  puller::FinishLog();
  if (Connection::CallsLeft()) {
    std::fflush(nullptr);
    std::_Exit(code);
  }
  return code;
}

}  // namespace postbox::cli
