#include "worker/puller/database.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "proto/rules/utf8.h"
#include "worker/puller/binary_format.h"
#include "worker/puller/failpoint.h"
#include "worker/puller/log.h"

namespace postbox::puller {

struct CancelRequest {
  explicit CancelRequest(PGconn* connection) : data(PQgetCancel(connection), PQfreeCancel) {}

  const std::unique_ptr<PGcancel, void (*)(PGcancel*)> data;
  std::atomic<bool> running = false;  // a thread sends it, and waits for the answer
};

namespace {

constexpr int64_t kLongestPollMs = 60'000;
// How often a transaction is begun before the default statement_timeout is too short for it.
constexpr int kMaxAttempts = 20;
constexpr char kStopped[] = "stopped before the server has answered";
constexpr char kNoAnswer[] = "the server has not answered in time";

// Empty if there is none.
std::string_view ErrorField(const PGresult* result, int code) {
  const char* text = PQresultErrorField(result, code);
  return text == nullptr ? "" : text;
}

// The text as one line, because libpq breaks its messages into several. Its beginning, if it is
// longer than kMaxErrorBytes.
std::string OneLine(std::string_view text) {
  std::string line;
  for (const char c : text) {
    if (line.size() >= QueryResult::kMaxErrorBytes) return Cut(line, QueryResult::kMaxErrorBytes);
    const bool blank = c == '\n' || c == '\t' || c == ' ';
    if (!blank) {
      line += c;
    } else if (!line.empty() && line.back() != ' ') {
      line += ' ';
    }
  }
  if (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

std::string SetLocal(const char* name, std::chrono::milliseconds value) {
  return std::string("SET LOCAL ") + name + " = " + std::to_string(value.count());
}

// The statements before the one that counts. statement_timeout comes first and without an
// expression: the default of the role may be too short to plan even a SELECT.
std::vector<std::string> Prologue(const TransactionLimits& limits, int server_version) {
  std::string settings;
  const auto set = [&settings](const char* name, const std::string& value) {
    settings += settings.empty() ? "SELECT " : ", ";
    settings += std::string("pg_catalog.set_config('") + name + "', " + value + ", true)";
  };
  set("search_path", "'pg_catalog, pg_temp'");
  set("client_encoding", "'UTF8'");
  set("TimeZone", "'UTC'");
  set("DateStyle", "'ISO, MDY'");
  set("IntervalStyle", "'postgres'");
  set("extra_float_digits", "'1'");
  set("bytea_output", "'hex'");
  // With off, reading a table of Postbox that has policies is an error.
  set("row_security", "'on'");
  // To compile what is done to one event takes longer than to do it.
  set("jit", "'off'");
  // The server warns when it gives up the wait for a standby, and does not say it in another way.
  set("client_min_messages", "'warning'");
  set("synchronous_commit",
      "CASE WHEN pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.=) "
      "'remote_apply' THEN 'remote_apply' ELSE 'on' END");
  set("lock_timeout", "'" + std::to_string(limits.lock_timeout.count()) + "'");
  set("idle_in_transaction_session_timeout", "'60s'");
  if (server_version >= 170000) set("transaction_timeout", "'0'");
  return {std::string("BEGIN ISOLATION LEVEL READ COMMITTED, ") +
              (limits.read_only ? "READ ONLY" : "READ WRITE") + ", NOT DEFERRABLE",
          SetLocal("statement_timeout", limits.statement_timeout), std::move(settings)};
}

}  // namespace

Parameter Parameter::Array(Oid element_type,
                           const std::vector<std::optional<std::string_view>>& values) {
  size_t bytes = kArrayHeaderBytes;
  for (const auto& value : values) bytes += 4 + (value ? value->size() : 0);
  std::string out;
  out.reserve(bytes);
  AppendArrayHeader(element_type, values.size(), true, &out);
  for (const auto& value : values) {
    AppendInt32(value ? static_cast<int64_t>(value->size()) : -1, &out);
    if (value) out.append(*value);
  }
  return Bytes(std::move(out));
}

QueryResult::QueryResult(PGresult* result, std::string connection_error)
    : result_(result, PQclear) {
  const ExecStatusType status = PQresultStatus(result);
  ok_ = status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK;
  if (ok_) return;
  if (result == nullptr) {
    error_ = connection_error.empty() ? "connection lost" : std::move(connection_error);
    return;
  }
  sqlstate_ = OneLine(ErrorField(result, PG_DIAG_SQLSTATE));
  error_ = ErrorWith(detail());
  if (error_.empty()) error_ = std::move(connection_error);
}

std::string_view QueryResult::detail() const {
  return ErrorField(result_.get(), PG_DIAG_MESSAGE_DETAIL);
}

std::string QueryResult::ErrorWith(std::string_view detail) const {
  std::string error = OneLine(ErrorField(result_.get(), PG_DIAG_MESSAGE_PRIMARY));
  const std::string line = OneLine(detail);
  if (!line.empty()) error += " (" + line + ")";
  return Cut(error, kMaxErrorBytes);
}

QueryResult QueryResult::Failure(std::string sqlstate, std::string error, bool not_begun) {
  QueryResult result(nullptr, std::move(error));
  result.sqlstate_ = std::move(sqlstate);
  result.not_begun_ = not_begun;
  return result;
}

std::string QueryResult::text(int row, int column) const {
  return std::string(PQgetvalue(result_.get(), row, column),
                     static_cast<size_t>(PQgetlength(result_.get(), row, column)));
}

std::optional<std::string> QueryResult::optional(int row, int column) const {
  if (null(row, column)) return std::nullopt;
  return text(row, column);
}

int64_t QueryResult::integer(int row, int column) const {
  return std::strtoll(PQgetvalue(result_.get(), row, column), nullptr, 10);
}

namespace {

// Waits until the socket can be read (or written), or `interrupt` can be read. Returns whether it
// is the socket.
bool PollSocket(int socket, bool reading, bool writing, int interrupt,
                std::chrono::steady_clock::time_point until) {
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    const auto events = static_cast<short>((reading ? POLLIN : 0) | (writing ? POLLOUT : 0));
    pollfd fds[] = {{socket, events, 0}, {interrupt, POLLIN, 0}};
    // poll() passes over a negative descriptor.
    const int ready =
        poll(fds, 2, static_cast<int>(std::min<int64_t>(left.count(), kLongestPollMs)));
    if (ready > 0) return fds[1].revents == 0;
    if (ready < 0 && errno != EINTR) return false;
  }
}

bool Interrupted(int interrupt) {
  pollfd fd{interrupt, POLLIN, 0};
  return interrupt >= 0 && poll(&fd, 1, 0) > 0;
}

// Calls of libpq that have not returned. Never destroyed, because their threads outlive main().
std::atomic<int>& CallsOut() {
  static auto& calls = *new std::atomic<int>(0);
  return calls;
}
constexpr int kMaxCallsOut = 1000;

// Makes the call on a new thread. False if there is none.
template <class Call>
bool OnOwnThread(Call call) {
  if (++CallsOut() <= kMaxCallsOut) {
    try {
      std::thread([call = std::move(call)]() mutable {
        call();
        // What it holds on to is freed before the call counts as over.
        { const Call last = std::move(call); }
        --CallsOut();
      }).detach();
      return true;
    } catch (const std::system_error&) {
      LogDebug("no thread for a call of libpq", {});
    }
  }
  --CallsOut();
  return false;
}

std::chrono::seconds ConnectTime() {
  return std::chrono::ceil<std::chrono::seconds>(TimeOf("connect_time", Connection::kConnectTime));
}

// The connect_timeout of the connection string, or else of PGCONNECT_TIMEOUT or the service in
// PGSERVICE, which counts for each host, in seconds. A thread that is not waited for any more would
// never end without one.
std::string ConnectTimeout(const std::string& dsn) {
  const auto most = static_cast<int>(ConnectTime().count());
  using Options = std::unique_ptr<PQconninfoOption, void (*)(PQconninfoOption*)>;
  const auto wanted = [](const Options& options) -> std::optional<int64_t> {
    for (const auto* option = options.get(); option != nullptr && option->keyword; ++option) {
      if (option->val == nullptr || std::strcmp(option->keyword, "connect_timeout") != 0) continue;
      return std::strtoll(option->val, nullptr, 10);
    }
    return std::nullopt;
  };
  std::optional<int64_t> timeout =
      wanted(Options(PQconninfoParse(dsn.c_str(), nullptr), PQconninfoFree));
  if (!timeout) timeout = wanted(Options(PQconndefaults(), PQconninfoFree));
  if (!timeout) return std::to_string(std::min(10, most));
  return std::to_string(*timeout <= 0 || *timeout > most ? most : static_cast<int>(*timeout));
}

// An attempt to connect, which a separate thread makes: libpq knows how to try several hosts,
// each with a time-out, only in a call that blocks. Its end need not be waited for.
class Attempt {
 public:
  explicit Attempt(std::vector<std::pair<const char*, std::string>> parameters)
      : parameters_(std::move(parameters)), done_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Attempt() {
    PQfinish(connection_);
    if (done_fd_ >= 0) close(done_fd_);
  }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  int done_fd() const { return done_fd_; }
  void Run() {
    std::vector<const char*> keywords;
    std::vector<const char*> values;
    for (const auto& [keyword, value] : parameters_) {
      keywords.push_back(keyword);
      values.push_back(value.c_str());
    }
    keywords.push_back(nullptr);
    values.push_back(nullptr);
    connection_ = PQconnectdbParams(keywords.data(), values.data(), /*expand_dbname=*/1);
    eventfd_write(done_fd_, 1);
  }
  // After done_fd() is readable.
  PGconn* Take() { return std::exchange(connection_, nullptr); }

 private:
  const std::vector<std::pair<const char*, std::string>> parameters_;
  const int done_fd_;
  PGconn* connection_ = nullptr;
};

PGconn* Connect(std::vector<std::pair<const char*, std::string>> parameters, int interrupt,
                std::string* error) {
  const auto attempt = std::make_shared<Attempt>(std::move(parameters));
  if (!OnOwnThread([attempt] { attempt->Run(); })) {
    *error = "no thread to connect";
    return nullptr;
  }
  const auto until = std::chrono::steady_clock::now() + ConnectTime();
  if (!PollSocket(attempt->done_fd(), true, false, interrupt, until)) {
    *error = Interrupted(interrupt) ? kStopped : kNoAnswer;
    return nullptr;
  }
  PGconn* connection = attempt->Take();
  if (connection != nullptr && PQstatus(connection) == CONNECTION_OK) return connection;
  *error = connection == nullptr ? "out of memory" : OneLine(PQerrorMessage(connection));
  PQfinish(connection);
  return nullptr;
}

}  // namespace

std::unique_ptr<Connection> Connection::Open(const std::string& dsn,
                                             const std::string& application_name,
                                             const TransactionLimits& limits, int interrupt,
                                             std::string* error) {
  // The values before dbname are defaults that the connection string may change. The timeouts
  // detect a server that is gone without closing the connection.
  PGconn* raw = Connect({{"fallback_application_name", application_name},
                         {"tcp_user_timeout", "30000"},
                         {"keepalives_idle", "30"},
                         {"dbname", dsn},
                         {"connect_timeout", ConnectTimeout(dsn)},
                         {"client_encoding", "UTF8"}},
                        interrupt, error);
  if (raw == nullptr) return nullptr;
  return std::unique_ptr<Connection>(new Connection(raw, limits, interrupt));
}

Connection::Connection(PGconn* connection, const TransactionLimits& limits, int interrupt)
    : connection_(connection),
      cancel_(std::make_shared<CancelRequest>(connection)),
      interrupt_(interrupt),
      limits_(limits),
      prologue_(Prologue(limits, PQserverVersion(connection))) {
  PQsetNoticeReceiver(connection_, OnNotice, this);
  // Sending must not block either: a server that is stopped does not read.
  PQsetnonblocking(connection_, 1);
}

Connection::~Connection() { PQfinish(connection_); }

std::string Connection::Error() const {
  return error_.empty() ? OneLine(PQerrorMessage(connection_)) : error_;
}

bool Connection::WaitForSocket(bool sending, Clock::time_point until) {
  return PollSocket(PQsocket(connection_), true, sending, interrupt_, until);
}

bool Connection::Wait() {
  bool cancelled = false;
  auto until = std::min(deadline_, last_deadline_);
  while (true) {
    const int unsent = PQflush(connection_);
    if (unsent < 0) return false;
    if (unsent == 0 && PQisBusy(connection_) == 0) return true;
    if (!WaitForSocket(unsent > 0, until)) {
      if (Interrupted(interrupt_)) {
        error_ = kStopped;
        return false;
      }
      if (cancelled || Clock::now() >= last_deadline_) {
        error_ = kNoAnswer;
        return false;
      }
      cancelled = true;
      Cancel();
      until = std::min(Clock::now() + TimeOf("cancel_time", kCancelTime), last_deadline_);
      deadline_ = until;  // it is not cancelled again while its results are read
      continue;
    }
    if (PQconsumeInput(connection_) == 0) return false;
  }
}

PGresult* Connection::GetResult() {
  if (!error_.empty() || !Wait()) {
    if (error_.empty()) error_ = OneLine(PQerrorMessage(connection_));
    if (error_.empty()) error_ = "connection lost";
    return nullptr;
  }
  return PQgetResult(connection_);
}

void Connection::OnNotice(void* connection, const PGresult* notice) {
  auto* self = static_cast<Connection*>(connection);
  const char* severity = PQresultErrorField(notice, PG_DIAG_SEVERITY_NONLOCALIZED);
  const char* function = PQresultErrorField(notice, PG_DIAG_SOURCE_FUNCTION);
  // Not that of a deferred trigger. A pooler may leave the name of the function out.
  const bool of_wait = function == nullptr || std::strcmp(function, "SyncRepWaitForLSN") == 0;
  if (self->committing_ && of_wait && severity != nullptr &&
      std::strcmp(severity, "WARNING") == 0) {
    self->commit_warned_ = true;
  }
  LogDebug("notice", {{"sqlstate", OneLine(ErrorField(notice, PG_DIAG_SQLSTATE))},
                      {"text", OneLine(ErrorField(notice, PG_DIAG_MESSAGE_PRIMARY))}});
}

bool Connection::SendPlain(const char* text) {
  return PQsendQueryParams(connection_, text, 0, nullptr, nullptr, nullptr, nullptr, 0) == 1;
}

bool Connection::Send(const std::vector<std::string>& prologue, const char* sql,
                      const std::vector<Parameter>& parameters, bool commit) {
  std::vector<const char*> values;
  std::vector<int> lengths;
  std::vector<int> formats;
  for (const Parameter& parameter : parameters) {
    values.push_back(parameter.value ? parameter.value->c_str() : nullptr);
    lengths.push_back(parameter.value ? static_cast<int>(parameter.value->size()) : 0);
    formats.push_back(parameter.binary ? 1 : 0);
  }
  for (const std::string& statement : prologue) {
    if (!SendPlain(statement.c_str())) return false;
  }
  return PQsendQueryParams(connection_, sql, static_cast<int>(parameters.size()), nullptr,
                           values.data(), lengths.data(), formats.data(),
                           /*resultFormat=*/0) == 1 &&
         (!commit || SendPlain("COMMIT")) && PQpipelineSync(connection_) == 1;
}

PGresult* Connection::NextResult() {
  PGresult* result = GetResult();
  // After each result but that of the sync comes a NULL.
  if (result != nullptr && PQresultStatus(result) != PGRES_PIPELINE_SYNC) {
    while (PGresult* more = GetResult()) PQclear(more);
  }
  return result;
}

namespace {

bool HasFailed(PGresult* result) {
  const ExecStatusType status = PQresultStatus(result);  // PGRES_FATAL_ERROR for NULL
  return status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK;
}

}  // namespace

QueryResult Connection::Receive(size_t before, const Step* step) {
  std::optional<QueryResult> failure;
  const auto fail = [&](PGresult* result, bool not_begun) {
    if (failure) return PQclear(result);  // what follows an error was skipped
    failure.emplace(result, Error());
    failure->not_begun_ = not_begun;
  };
  for (size_t i = 0; i < before; ++i) {
    PGresult* result = NextResult();
    if (HasFailed(result)) {
      fail(result, /*not_begun=*/true);
    } else {
      PQclear(result);
    }
  }
  PGresult* result = NextResult();
  const bool applied = !failure && !HasFailed(result);
  if (!applied) fail(result, false);
  if (step != nullptr) {
    PQclear(NextResult());  // the sync
    if (!applied) return *std::move(failure);
    const std::string problem = (*step)(PQntuples(result) > 0 ? PQgetvalue(result, 0, 0) : "");
    if (!problem.empty()) {
      PQclear(result);
      return QueryResult::Failure("", problem, false);  // the transaction is rolled back by that
    }
    if (!SendPlain("COMMIT") || PQpipelineSync(connection_) != 1) {
      error_ = OneLine(PQerrorMessage(connection_));
    }
  }
  commit_warned_ = false;
  committing_ = true;
  PGresult* commit = NextResult();
  committing_ = false;
  if (applied) {
    failure.emplace(Committed(result, commit));
  } else {
    PQclear(commit);
  }
  PQclear(NextResult());  // the sync
  return *std::move(failure);
}

QueryResult Connection::Committed(PGresult* result, PGresult* commit) const {
  QueryResult end(commit, Error());
  QueryResult done(result, "");
  if (!end.ok()) return end;
  // COMMIT of a transaction that has failed is answered with ROLLBACK, and is no error.
  if (std::strcmp(PQcmdStatus(commit), "COMMIT") != 0) {
    return QueryResult::Failure(
        "25P02", std::string("COMMIT was answered with ") + PQcmdStatus(commit), false);
  }
  if (!commit_warned_) return done;
  // However long it was, it says nothing about the events.
  return QueryResult::Failure("57014", "the wait for a synchronous standby was cancelled", true);
}

QueryResult Connection::Execute(const char* sql, const std::vector<Parameter>& parameters,
                                const TransactionLimits* limits, const Step* step) {
  std::optional<std::vector<std::string>> prologue;
  if (limits != nullptr) prologue = Prologue(*limits, PQserverVersion(connection_));
  // One that does not answer is not asked again and again.
  const auto give_up = Clock::now() + kAnswerTime;
  for (int attempt = 1;; ++attempt) {
    QueryResult result = ExecuteOnce(prologue ? *prologue : prologue_, sql, parameters,
                                     limits != nullptr ? *limits : limits_, step);
    // Not one that is committed here, and of which the wait for a standby was cancelled.
    const bool too_short = result.not_begun() && result.sqlstate() == "57014" && !commit_warned_;
    if (!too_short || !usable_ || attempt == kMaxAttempts || Clock::now() >= give_up) return result;
  }
}

QueryResult Connection::ExecuteOnce(const std::vector<std::string>& prologue, const char* sql,
                                    const std::vector<Parameter>& parameters,
                                    const TransactionLimits& limits, const Step* step) {
  if (!usable_) {
    return QueryResult::Failure("", "the connection cannot be used any more", /*not_begun=*/true);
  }
  error_.clear();
  deadline_ = limits.statement_timeout.count() == 0 ? Clock::time_point::max()
                                                    : Clock::now() + limits.statement_timeout +
                                                          TimeOf("answer_time", limits.answer_time);
  if (PQenterPipelineMode(connection_) != 1 ||
      !Send(prologue, sql, parameters, /*commit=*/step == nullptr)) {
    usable_ = false;
    return QueryResult(nullptr, OneLine(PQerrorMessage(connection_)));
  }
  QueryResult result = Receive(prologue.size(), step);
  if (!error_.empty()) {
    usable_ = false;
    return result.ok() ? std::move(result) : QueryResult(nullptr, error_);
  }
  if (PQexitPipelineMode(connection_) != 1 || PQtransactionStatus(connection_) == PQTRANS_UNKNOWN) {
    usable_ = false;
    if (result.ok()) return result;
    return QueryResult(nullptr, result.error());
  }
  if (PQtransactionStatus(connection_) != PQTRANS_IDLE) RollBack();
  usable_ = error_.empty() && PQtransactionStatus(connection_) == PQTRANS_IDLE;
  return result;
}

// A request to cancel that comes late ends a ROLLBACK, too, and leaves the transaction as it is.
void Connection::RollBack() {
  deadline_ = Clock::now() + kAnswerTime;
  for (int attempt = 0; attempt < kMaxAttempts && error_.empty(); ++attempt) {
    if (PQtransactionStatus(connection_) == PQTRANS_IDLE) return;
    if (PQsendQuery(connection_, "ROLLBACK") != 1) return;
    while (PGresult* result = GetResult()) PQclear(result);
  }
}

bool Connection::alive() {
  if (!usable_ || PQstatus(connection_) != CONNECTION_OK) return false;
  pollfd socket{PQsocket(connection_), POLLIN, 0};
  // Between statements the server sends only notices, and a last message before it closes the
  // connection. The loop is bounded in case that notices arrive without a pause.
  for (int looks = 0; looks < 16 && poll(&socket, 1, 0) > 0; ++looks) {
    if (PQconsumeInput(connection_) == 0 || PQstatus(connection_) != CONNECTION_OK) return false;
  }
  return true;
}

void Connection::Cancel() {
  if (cancel_->data == nullptr || cancel_->running.exchange(true)) return;
  const bool begun = OnOwnThread([cancel = cancel_] {
    char error[256];
    PQcancel(cancel->data.get(), error, sizeof(error));
    cancel->running = false;
  });
  if (!begun) cancel_->running = false;
}

bool Connection::utf8() const {
  const char* encoding = PQparameterStatus(connection_, "server_encoding");
  return encoding != nullptr && std::string_view(encoding) == "UTF8";
}

bool Connection::CallsLeft() { return CallsOut() > 0; }

}  // namespace postbox::puller
