// A connection to the database over libpq.
//
// A statement is one transaction. A result that is ok means that the transaction is committed:
// libpq reports the last result, and that is an error if the connection breaks before the server is
// ready for the next statement.
#ifndef POSTBOX_WORKER_PULLER_DATABASE_H_
#define POSTBOX_WORKER_PULLER_DATABASE_H_

#include <libpq-fe.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace postbox::puller {

// Type OIDs that never change (pg_type.dat).
inline constexpr Oid kByteaOid = 17;
inline constexpr Oid kTextOid = 25;

struct Parameter {
  std::optional<std::string> value;
  bool binary = false;

  static Parameter Text(std::string value) { return {std::move(value), false}; }
  static Parameter Text(std::optional<std::string> value) { return {std::move(value), false}; }
  static Parameter Bytes(std::string value) { return {std::move(value), true}; }
  // An array in binary format. Elements without a value become NULL. `values` need not outlive the
  // call.
  static Parameter Array(Oid element_type,
                         const std::vector<std::optional<std::string_view>>& values);
};

class QueryResult {
 public:
  QueryResult(PGresult* result, std::string connection_error);

  bool ok() const { return ok_; }
  const std::string& sqlstate() const { return sqlstate_; }  // empty if the connection broke
  const std::string& error() const { return error_; }        // primary message and detail

  int rows() const { return PQntuples(result_.get()); }
  bool null(int row, int column) const { return PQgetisnull(result_.get(), row, column) != 0; }
  std::string text(int row, int column) const;
  std::optional<std::string> optional(int row, int column) const;
  int64_t integer(int row, int column) const;  // 0 if NULL

 private:
  std::unique_ptr<PGresult, void (*)(PGresult*)> result_;
  bool ok_ = false;
  std::string sqlstate_;
  std::string error_;
};

class Connection {
 public:
  // `application_name` is shown in pg_stat_activity. On failure returns null and puts the reason
  // into `error`.
  static std::unique_ptr<Connection> Open(const std::string& dsn,
                                          const std::string& application_name, std::string* error);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  QueryResult Execute(const char* sql, const std::vector<Parameter>& parameters = {});

  // False if the server has closed the connection. Does not wait.
  bool alive();
  // Asks the server to cancel the statement that runs. May be called on any thread.
  void Cancel();

 private:
  explicit Connection(PGconn* connection)
      : connection_(connection), cancel_(PQgetCancel(connection)) {}

  PGconn* const connection_;
  PGcancel* const cancel_;
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_DATABASE_H_
