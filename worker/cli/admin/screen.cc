#include "worker/cli/admin/screen.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "worker/base/line_queue.h"
#include "worker/cli/base/open_place.h"
#include "worker/cli/base/operator_session.h"

namespace postbox::cli {
namespace {

using Json = nlohmann::ordered_json;
using Row = std::vector<std::string>;

// The views say all of it. `rank` puts the worst first.
constexpr char kQuery[] = R"(
    SELECT json_build_object(
      'database', current_database(),
      'at', to_char(clock_timestamp(), 'YYYY-MM-DD"T"HH24:MI:SSOF'),
      'standby', pg_is_in_recovery(),
      'known_until', CASE WHEN pg_is_in_recovery() THEN
        to_char(postbox.known_until(), 'YYYY-MM-DD"T"HH24:MI:SSOF') END,
      'publications', (
        SELECT coalesce(json_agg(to_json(p) ORDER BY p.state = 'active',
                                 p.pending DESC NULLS LAST, p.publication), '[]')
        FROM (SELECT s.publication, s.outbox::text, s.topic, s.state, s.pending, s.parked,
                     s.delayed, s.expired,
                     extract(epoch FROM s.oldest_pending)::float8 AS oldest_pending_seconds,
                     s.retry_at, s.suspended_since, s.last_error, s.sent_again_at_most,
                     s.sent_again_at
              FROM postbox.publication_status s) p),
      'subscriptions', (
        SELECT coalesce(json_agg(to_json(s) ORDER BY s.rank, s.subscription), '[]')
        FROM (SELECT CASE WHEN b.paused_until > now() THEN 3 WHEN t.stream IS NULL THEN 0
                          WHEN t.stream <> 'connected' OR t.retrying_since IS NOT NULL
                               OR t.unanswered_since IS NOT NULL
                               OR t.suspended_types IS NOT NULL THEN 1
                          ELSE 2 END AS rank,
                     b.name AS subscription, b.inbox::text,
                     (b.paused_until > now()) IS TRUE AS paused, b.paused_at,
                     b.paused_until, t.puller, t.last_seen,
                     t.stream, t.applied, t.duplicates, t.failures, t.dead_letters,
                     t.retrying_since, t.unanswered_since, t.suspended_types,
                     t.suspended_since, p.pid AS session,
                     coalesce(CASE WHEN b.paused_until > now() THEN b.paused_reason END,
                              t.stream_error, 'no answer from process ' || t.unanswered_pid
                              || CASE WHEN pg_is_in_recovery() THEN ' of the primary'
                                 ELSE ' of the server' END,
                              array_to_string(t.suspended_types, ', ') || ': '
                              || t.suspended_error, t.last_error) AS last_error
              FROM postbox.subscription b
              LEFT JOIN postbox.list_pullers() p ON p.subscription = b.name AND p.may_apply
              LEFT JOIN postbox.subscription_status t ON t.subscription = b.name) s),
      'pauses', (
        SELECT coalesce(json_agg(to_json(c) ORDER BY c.kind DESC, c.name), '[]')
        FROM (SELECT 'projection' AS kind, name, inbox::text, paused_at, paused_until, paused_reason
              FROM postbox.projection UNION ALL
              SELECT 'handler', name, inbox::text, paused_at, paused_until, paused_reason
              FROM postbox.handler) c
        WHERE c.paused_until > now()),
      'workers', CASE WHEN has_function_privilege('postbox.list_workers()', 'EXECUTE') THEN (
        SELECT coalesce(json_agg(to_json(w) ORDER BY w.state = 'running', w.database,
                                 w.ordinal), '[]')
        FROM (SELECT w.pid, w.database, w.ordinal, w.state, w.started_at
              FROM postbox.workers w) w) END,
      'dead_letters', (SELECT count(*) FROM postbox.dead_letter))::text)";

std::string Text(const Json& row, const char* column) {
  const auto found = row.find(column);
  if (found == row.end() || found->is_null()) return "-";
  std::string text = found->is_string() ? found->get<std::string>() : found->dump();
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return text;
}

std::string Age(const Json& row, const char* column) {
  const auto found = row.find(column);
  if (found == row.end() || !found->is_number()) return "-";
  const auto seconds = static_cast<int64_t>(found->get<double>());
  if (seconds < 120) return std::to_string(seconds) + " s";
  if (seconds < 7200) return std::to_string(seconds / 60) + " min";
  return std::to_string(seconds / 3600) + " h";
}

// With aligned columns; the first row is the head. The last column has what room it needs.
void AppendTable(const std::vector<Row>& rows, std::vector<std::string>* lines) {
  std::vector<size_t> widths(rows.front().size());
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line += std::string(widths[i] + 2 - row[i].size(), ' ');
    }
    lines->push_back(std::move(line));
  }
}

// A standby does not see the sessions of its primary.
std::string SubscriptionState(const Json& row, bool standby) {
  if (row["paused"] == true) return "paused";
  if (row["stream"].is_null()) {
    return row["session"].is_null() && !standby ? "no puller" : "no report";
  }
  if (!row["unanswered_since"].is_null()) return "no answer";
  if (!row["suspended_types"].is_null()) return "suspended";
  return row["retrying_since"].is_null() ? Text(row, "stream") : "retrying";
}

std::vector<std::string> Lines(const Json& all) {
  std::vector<std::string> lines = {"postbox: database " + Text(all, "database") + " at " +
                                    Text(all, "at") +
                                    ", dead letters: " + Text(all, "dead_letters")};
  const bool standby = all["standby"] == true;
  if (standby) {
    const std::string time =
        all["known_until"].is_null() ? "an unknown time" : Text(all, "known_until");
    lines.push_back("standby: shows what its primary had committed at " + time +
                    "; what only the workers of the primary know is missing");
  }
  lines.emplace_back();
  std::vector<Row> table = {
      {"PUBLICATION", "STATE", "PENDING", "PARKED", "DELAYED", "OLDEST", "TOPIC", "ERROR"}};
  for (const Json& row : all["publications"]) {
    table.push_back({Text(row, "publication"), Text(row, "state"), Text(row, "pending"),
                     Text(row, "parked"), Text(row, "delayed"), Age(row, "oldest_pending_seconds"),
                     Text(row, "topic"), Text(row, "last_error")});
  }
  AppendTable(table, &lines);
  lines.emplace_back();
  table = {{"SUBSCRIPTION", "STATE", "APPLIED", "DUPLICATES", "FAILURES", "PULLER", "ERROR"}};
  for (const Json& row : all["subscriptions"]) {
    table.push_back({Text(row, "subscription"), SubscriptionState(row, standby),
                     Text(row, "applied"), Text(row, "duplicates"), Text(row, "failures"),
                     Text(row, "puller"), Text(row, "last_error")});
  }
  AppendTable(table, &lines);
  lines.emplace_back();
  table = {{"PAUSED", "NAME", "INBOX", "SINCE", "UNTIL", "REASON"}};
  for (const Json& row : all["pauses"]) {
    table.push_back({Text(row, "kind"), Text(row, "name"), Text(row, "inbox"),
                     Text(row, "paused_at"), Text(row, "paused_until"),
                     Text(row, "paused_reason")});
  }
  if (table.size() > 1) {
    AppendTable(table, &lines);
    lines.emplace_back();
  }
  table = {{"WORKER", "STATE", "DATABASE", "SINCE"}};
  if (all["workers"].is_null()) lines.emplace_back("workers: for members of pg_monitor only");
  for (const Json& row : all["workers"]) {
    table.push_back(
        {Text(row, "pid"), Text(row, "state"), Text(row, "database"), Text(row, "started_at")});
  }
  if (!all["workers"].is_null()) AppendTable(table, &lines);
  return lines;
}

// Asks the database, and connects again if the connection is lost.
class Look {
 public:
  explicit Look(std::string dsn, std::string name) : dsn_(std::move(dsn)), name_(std::move(name)) {}

  // Nothing after an error, which error() and remedy() say.
  std::optional<Json> Ask() {
    if (!connection_ || !connection_->alive()) {
      connection_.reset();
      connection_ = OpenDatabase(dsn_, name_, &error_);
      remedy_ = connection_ ? "" : ConnectionRemedy(error_);
      if (!connection_) return std::nullopt;
    }
    const puller::QueryResult result = connection_->Execute(kQuery);
    if (result.ok()) {
      Json json = Json::parse(result.text(0, 0), nullptr, false);
      if (!json.is_discarded()) return json;
      error_ = "the database did not return JSON";
      return std::nullopt;
    }
    const bool missing = result.sqlstate() == "42P01" || result.sqlstate() == "3F000" ||
                         result.sqlstate() == "42883";
    error_ = missing ? "the extension postbox of this version is not installed in this database"
                     : result.error();
    remedy_ = missing ? "run CREATE EXTENSION postbox or ALTER EXTENSION postbox UPDATE in it, or "
                        "name another database with PGDATABASE or dbname=... in --dsn"
                      : "see the server log";
    return std::nullopt;
  }
  const std::string& error() const { return error_; }
  const std::string& remedy() const { return remedy_; }

 private:
  const std::string dsn_, name_;
  std::unique_ptr<puller::Connection> connection_;
  std::string error_, remedy_;
};

std::atomic<bool> interrupted = false;
// How long a terminal may take for a screen, and the next one is left out.
constexpr std::chrono::milliseconds kTerminalWait{200};

// The terminal without echo and without waiting for the end of a line, on its second screen; as it
// was when the object is gone.
class Terminal {
 public:
  Terminal() {
    tcgetattr(STDIN_FILENO, &saved_);
    termios raw = saved_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    StandardOutput().Push("\033[?1049h\033[?25l");
  }
  ~Terminal() {
    StandardOutput().Push("\033[?25h\033[?1049l");
    StandardOutput().Finish();
    tcsetattr(STDIN_FILENO, TCSANOW, &saved_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Left out while the terminal has not taken the screen before: it may be stopped (Ctrl-S).
  static void Show(const std::vector<std::string>& lines) {
    if (!StandardOutput().Finish(kTerminalWait)) return;
    winsize size{};
    const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0;
    const size_t most = known ? size.ws_row : 24;
    const size_t width = known && size.ws_col > 0 ? size.ws_col : 80;
    std::string screen = "\033[H";
    for (size_t i = 0; i < std::min(lines.size(), most - 1); ++i) {
      std::string line = lines[i].substr(0, width);
      // No character is divided.
      while (!line.empty() && line.size() < lines[i].size() &&
             (static_cast<unsigned char>(lines[i][line.size()]) & 0xC0) == 0x80) {
        line.pop_back();
      }
      screen += line + "\033[K\r\n";
    }
    screen += "q quits\033[J";
    StandardOutput().Push(std::move(screen));
  }

  // Waits for a key. False if q was pressed or the terminal is gone.
  static bool Wait(std::chrono::milliseconds time) {
    pollfd keys{STDIN_FILENO, POLLIN, 0};
    if (poll(&keys, 1, static_cast<int>(time.count())) <= 0) return true;
    char key = 0;
    return read(STDIN_FILENO, &key, 1) == 1 && key != 'q' && key != 'Q';
  }

 private:
  termios saved_{};
};

}  // namespace

int RunStatus(const StatusOptions& options) {
  Look look(options.dsn, "postbox status");
  const std::optional<Json> all = look.Ask();
  if (!all) return Fail(look.error(), look.remedy());
  if (options.json) {
    std::printf("%s\n", all->dump(2, ' ', false, Json::error_handler_t::replace).c_str());
    return 0;
  }
  for (const std::string& line : Lines(*all)) std::printf("%s\n", line.c_str());
  return 0;
}

int RunTop(const StatusOptions& options) {
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0) {
    return Fail("postbox top needs a terminal", "use postbox status");
  }
  Look look(options.dsn, "postbox top");
  std::optional<Json> all = look.Ask();
  if (!all) return Fail(look.error(), look.remedy());
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = true; };
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaction(number, &action, nullptr);
  const Terminal terminal;
  std::vector<std::string> lines;
  do {
    if (all) lines = Lines(*all);
    if (!all) lines.front() = "no answer: " + look.error();
    Terminal::Show(lines);
    if (!Terminal::Wait(std::chrono::seconds(options.interval)) || interrupted) break;
    all = look.Ask();
  } while (!interrupted);
  return 0;
}

}  // namespace postbox::cli
