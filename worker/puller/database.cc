#include "worker/puller/database.h"

#include <arpa/inet.h>
#include <poll.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "proto/rules/utf8.h"
#include "worker/puller/log.h"

namespace postbox::puller {
namespace {

void AppendInt32(std::string* out, int64_t value) {
  const uint32_t network = htonl(static_cast<uint32_t>(value));
  char bytes[sizeof(network)];
  std::memcpy(bytes, &network, sizeof(network));
  out->append(bytes, sizeof(bytes));
}

// The text as one line, because libpq breaks its messages into several. Its beginning, if it is
// longer than kMaxErrorBytes.
std::string OneLine(const char* text) {
  std::string line;
  for (const char* c = text == nullptr ? "" : text; *c != '\0'; ++c) {
    if (line.size() >= QueryResult::kMaxErrorBytes) return Cut(line, QueryResult::kMaxErrorBytes);
    const bool blank = *c == '\n' || *c == '\t' || *c == ' ';
    if (!blank) {
      line += *c;
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
  // The format of array_recv: dimensions, "has nulls" flag, element type, then per dimension its
  // length and lower bound, then per element its length (-1: NULL) and bytes.
  size_t bytes = 20;
  for (const auto& value : values) bytes += 4 + (value ? value->size() : 0);
  std::string out;
  out.reserve(bytes);
  AppendInt32(&out, values.empty() ? 0 : 1);
  AppendInt32(&out, 1);
  AppendInt32(&out, element_type);
  if (!values.empty()) {
    AppendInt32(&out, static_cast<int64_t>(values.size()));
    AppendInt32(&out, 1);
  }
  for (const auto& value : values) {
    AppendInt32(&out, value ? static_cast<int64_t>(value->size()) : -1);
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
  sqlstate_ = OneLine(PQresultErrorField(result, PG_DIAG_SQLSTATE));
  error_ = OneLine(PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY));
  const std::string detail = OneLine(PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL));
  if (!detail.empty()) error_ += " (" + detail + ")";
  error_ = Cut(error_, kMaxErrorBytes);
  context_ = OneLine(PQresultErrorField(result, PG_DIAG_CONTEXT));
  if (error_.empty()) error_ = std::move(connection_error);
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

std::unique_ptr<Connection> Connection::Open(const std::string& dsn,
                                             const std::string& application_name,
                                             const TransactionLimits& limits, std::string* error) {
  // The values before dbname are defaults that the connection string may change. The timeouts
  // detect a server that is gone without closing the connection.
  const char* const keywords[] = {"fallback_application_name",
                                  "connect_timeout",
                                  "tcp_user_timeout",
                                  "keepalives_idle",
                                  "dbname",
                                  "client_encoding",
                                  nullptr};
  const char* const values[] = {
      application_name.c_str(), "10", "30000", "30", dsn.c_str(), "UTF8", nullptr};
  PGconn* raw = PQconnectdbParams(keywords, values, /*expand_dbname=*/1);
  if (raw == nullptr || PQstatus(raw) != CONNECTION_OK) {
    *error = raw == nullptr ? "out of memory" : OneLine(PQerrorMessage(raw));
    PQfinish(raw);
    return nullptr;
  }
  return std::unique_ptr<Connection>(new Connection(raw, limits));
}

Connection::Connection(PGconn* connection, const TransactionLimits& limits)
    : connection_(connection),
      cancel_(PQgetCancel(connection)),
      prologue_(Prologue(limits, PQserverVersion(connection))) {
  PQsetNoticeReceiver(connection_, OnNotice, this);
}

Connection::~Connection() {
  PQfreeCancel(cancel_);
  PQfinish(connection_);
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
  LogDebug("notice", {{"sqlstate", OneLine(PQresultErrorField(notice, PG_DIAG_SQLSTATE))},
                      {"text", OneLine(PQresultErrorField(notice, PG_DIAG_MESSAGE_PRIMARY))}});
}

bool Connection::Send(const std::string& setting, const char* sql,
                      const std::vector<Parameter>& parameters) {
  std::vector<const char*> values;
  std::vector<int> lengths;
  std::vector<int> formats;
  for (const Parameter& parameter : parameters) {
    values.push_back(parameter.value ? parameter.value->c_str() : nullptr);
    lengths.push_back(parameter.value ? static_cast<int>(parameter.value->size()) : 0);
    formats.push_back(parameter.binary ? 1 : 0);
  }
  const auto plain = [this](const char* text) {
    return PQsendQueryParams(connection_, text, 0, nullptr, nullptr, nullptr, nullptr, 0) == 1;
  };
  for (const std::string& statement : prologue_) {
    if (!plain(statement.c_str())) return false;
  }
  if (!setting.empty() && !plain(setting.c_str())) return false;
  return PQsendQueryParams(connection_, sql, static_cast<int>(parameters.size()), nullptr,
                           values.data(), lengths.data(), formats.data(),
                           /*resultFormat=*/0) == 1 &&
         plain("COMMIT") && PQpipelineSync(connection_) == 1;
}

PGresult* Connection::NextResult() {
  PGresult* result = PQgetResult(connection_);
  // After each result but that of the sync comes a NULL.
  if (result != nullptr && PQresultStatus(result) != PGRES_PIPELINE_SYNC) {
    while (PGresult* more = PQgetResult(connection_)) PQclear(more);
  }
  return result;
}

QueryResult Connection::Receive(size_t before) {
  const auto failed = [](PGresult* result) {
    const ExecStatusType status = PQresultStatus(result);  // PGRES_FATAL_ERROR for NULL
    return status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK;
  };
  std::optional<QueryResult> outcome;
  const auto end = [&](PGresult* result, bool not_begun) {
    if (outcome) return PQclear(result);  // what follows an error was skipped
    outcome.emplace(result, OneLine(PQerrorMessage(connection_)));
    outcome->not_begun_ = not_begun;
  };
  for (size_t i = 0; i < before; ++i) {
    PGresult* result = NextResult();
    if (failed(result)) {
      end(result, /*not_begun=*/true);
    } else {
      PQclear(result);
    }
  }
  PGresult* result = NextResult();
  const bool applied = !outcome && !failed(result);
  if (!applied) end(result, false);
  commit_warned_ = false;
  committing_ = true;
  PGresult* commit = NextResult();
  committing_ = false;
  if (!applied) {
    PQclear(commit);
  } else if (failed(commit)) {
    PQclear(result);
    end(commit, false);
  } else {
    end(result, false);
    PQclear(commit);
    if (commit_warned_) {
      // However long it was, it says nothing about the events.
      outcome.emplace(
          QueryResult::Failure("57014", "the wait for a synchronous standby was cancelled", true));
    }
  }
  PQclear(NextResult());  // the sync
  return *std::move(outcome);
}

QueryResult Connection::Execute(const char* sql, const std::vector<Parameter>& parameters,
                                std::optional<std::chrono::milliseconds> lock_timeout) {
  const std::string setting = lock_timeout ? SetLocal("lock_timeout", *lock_timeout) : "";
  if (PQenterPipelineMode(connection_) != 1 || !Send(setting, sql, parameters)) {
    usable_ = false;
    return QueryResult(nullptr, OneLine(PQerrorMessage(connection_)));
  }
  QueryResult result = Receive(prologue_.size() + (setting.empty() ? 0 : 1));
  if (PQexitPipelineMode(connection_) != 1 || PQtransactionStatus(connection_) == PQTRANS_UNKNOWN) {
    usable_ = false;
    if (result.ok()) return result;
    return QueryResult(nullptr, result.error());
  }
  if (PQtransactionStatus(connection_) != PQTRANS_IDLE) PQclear(PQexec(connection_, "ROLLBACK"));
  usable_ = PQtransactionStatus(connection_) == PQTRANS_IDLE;
  return result;
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
  char error[256];
  if (cancel_ != nullptr) PQcancel(cancel_, error, sizeof(error));
}

}  // namespace postbox::puller
