#include "worker/puller/database.h"

#include <arpa/inet.h>
#include <poll.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "worker/puller/log.h"

namespace postbox::puller {
namespace {

void AppendInt32(std::string* out, int64_t value) {
  const uint32_t network = htonl(static_cast<uint32_t>(value));
  char bytes[sizeof(network)];
  std::memcpy(bytes, &network, sizeof(network));
  out->append(bytes, sizeof(bytes));
}

// The text as one line: libpq breaks its messages into several.
std::string OneLine(const char* text) {
  std::string line;
  for (const char* c = text == nullptr ? "" : text; *c != '\0'; ++c) {
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

void LogNotice(void*, const PGresult* result) {
  LogDebug("notice", {{"sqlstate", OneLine(PQresultErrorField(result, PG_DIAG_SQLSTATE))},
                      {"text", OneLine(PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY))}});
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
  sqlstate_ = OneLine(PQresultErrorField(result, PG_DIAG_SQLSTATE));
  error_ = OneLine(PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY));
  const std::string detail = OneLine(PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL));
  if (!detail.empty()) error_ += " (" + detail + ")";
  if (error_.empty()) error_ = std::move(connection_error);
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
                                             std::string* error) {
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
  PQsetNoticeReceiver(raw, LogNotice, nullptr);
  return std::unique_ptr<Connection>(new Connection(raw));
}

Connection::~Connection() {
  PQfreeCancel(cancel_);
  PQfinish(connection_);
}

QueryResult Connection::Execute(const char* sql, const std::vector<Parameter>& parameters) {
  std::vector<const char*> values;
  std::vector<int> lengths;
  std::vector<int> formats;
  for (const Parameter& parameter : parameters) {
    values.push_back(parameter.value ? parameter.value->c_str() : nullptr);
    lengths.push_back(parameter.value ? static_cast<int>(parameter.value->size()) : 0);
    formats.push_back(parameter.binary ? 1 : 0);
  }
  PGresult* result =
      PQexecParams(connection_, sql, static_cast<int>(parameters.size()), nullptr, values.data(),
                   lengths.data(), formats.data(), /*resultFormat=*/0);
  return QueryResult(result, OneLine(PQerrorMessage(connection_)));
}

bool Connection::alive() {
  if (PQstatus(connection_) != CONNECTION_OK) return false;
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
