// A connection to the database over libpq.
//
// A statement is one transaction. A result that is ok means that the transaction is committed: the
// server has answered the COMMIT, and nothing has kept it from being as durable as it should be.
//
//   - BEGIN, the settings, the statement and COMMIT are sent at once, so that they cost one round
//     trip (libpq's pipeline mode, the unnamed prepared statement).
//   - What the statement depends on is set in its own transaction: isolation, access, durability,
//     timeouts, search_path, encoding, and the formats of values. So the defaults of the role and
//     of the database do not matter, and nothing is kept in the session. Each transaction may run
//     in another session, as it does behind PgBouncer with pool_mode = transaction. Until the
//     transaction has its own statement_timeout the default holds; if that is over before, the
//     transaction is begun again.
//   - COMMIT waits for the flush of its WAL record, here and on synchronous standbys:
//     synchronous_commit is on, or remote_apply if that is the default of the session. A wait for a
//     standby that is cancelled ends with a warning, and the transaction is committed here only.
//     The result is not ok then.
//   - No wait is without an end. A server that does not answer is given statement_timeout and
//     answer_time more. Then the statement is cancelled, which also ends the wait for a standby,
//     and kCancelTime later the connection counts as broken. With statement_timeout = 0 nothing
//     can tell a silent server from a long statement; then only the interrupt ends the wait.
//   - The interrupt is a descriptor that becomes readable when the thread is to stop.
//     It ends every wait at once; the connection is broken then.
//   - Two calls of libpq cannot be interrupted: the one that connects, which resolves names, tries
//     several hosts and speaks TLS and Kerberos, and the one that asks for a cancel. Each is made
//     by a separate thread, which is not waited for. There are never many of them: to
//     connect always has a time-out, whatever the connection string says, and a connection whose
//     last request for a cancel has not been answered sends no other one.
#ifndef POSTBOX_WORKER_PULLER_DATABASE_H_
#define POSTBOX_WORKER_PULLER_DATABASE_H_

#include <libpq-fe.h>

#include <chrono>
#include <functional>
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
  // Takes the result over. NULL stands for a connection that broke.
  QueryResult(PGresult* result, std::string connection_error);
  // A transaction that failed in a way that no result tells.
  static QueryResult Failure(std::string sqlstate, std::string error, bool not_begun);

  bool ok() const { return ok_; }
  const std::string& sqlstate() const { return sqlstate_; }  // empty if the connection broke
  // Primary message and detail, at most kMaxErrorBytes: Postgres repeats values in its messages.
  const std::string& error() const { return error_; }
  // The same with another detail, of an error of the server.
  std::string ErrorWith(std::string_view detail) const;
  std::string_view detail() const;  // of any length
  // True if the transaction failed before the statement began.
  bool not_begun() const { return not_begun_; }
  static constexpr size_t kMaxErrorBytes = 8192;

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
  bool not_begun_ = false;

  friend class Connection;
};

// What a transaction may do, and how long its statement may take. Zero: no limit.
struct TransactionLimits {
  bool read_only = false;
  std::chrono::milliseconds statement_timeout = std::chrono::seconds(30);
  std::chrono::milliseconds lock_timeout = std::chrono::seconds(5);
  // How much later than statement_timeout an answer may come. A COMMIT may wait for a standby.
  std::chrono::milliseconds answer_time = std::chrono::seconds(30);
};

struct CancelRequest;  // what a thread that asks for a cancel needs

class Connection {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kAnswerTime{30};
  static constexpr std::chrono::seconds kCancelTime{10};
  // To connect, to all the hosts of the connection string together.
  static constexpr std::chrono::seconds kConnectTime{60};

  // `application_name` is shown in pg_stat_activity. `interrupt` is a descriptor that outlives the
  // connection, or -1. On failure returns null and puts the reason into `error`.
  static std::unique_ptr<Connection> Open(const std::string& dsn,
                                          const std::string& application_name,
                                          const TransactionLimits& limits, int interrupt,
                                          std::string* error);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // What is done elsewhere between a statement and its COMMIT. It is told the first value that the
  // statement has returned, and returns an error, or nothing.
  using Step = std::function<std::string(const std::string& value)>;

  // Runs the statement in a separate transaction, with other limits than those of the connection
  // if `limits` are given. If the step fails, the transaction is rolled back, and the result has
  // the error of the step, without a SQLSTATE.
  QueryResult Execute(const char* sql, const std::vector<Parameter>& parameters = {},
                      const TransactionLimits* limits = nullptr, const Step* step = nullptr);

  // False if the server has closed the connection. Does not wait.
  bool alive();
  // Asks the server to cancel the statement that runs, unless it is being asked already. May be
  // called on any thread. Does not wait: a server that is stopped does not even answer this.
  void Cancel();
  // True if a thread is still in a call of libpq. Then the process must not end through exit(),
  // whose handlers would take OpenSSL from under the thread.
  static bool CallsLeft();
  // The time until which the next statements must be over, whatever their timeouts.
  void SetDeadline(Clock::time_point deadline) { last_deadline_ = deadline; }
  // From now on it does not end the waits any more.
  void IgnoreInterrupt() { interrupt_ = -1; }
  // The database can hold every text that is UTF-8.
  bool utf8() const;
  // The server has asked for a password, and took that of the connection string.
  bool used_password() const { return PQconnectionUsedPassword(connection_) != 0; }
  // The process id of the session's backend, as the server, or a pooler, has said.
  int backend_pid() const { return PQbackendPID(connection_); }

 private:
  Connection(PGconn* connection, const TransactionLimits& limits, int interrupt);

  // `prologue`: what comes before the statement, BEGIN first.
  QueryResult ExecuteOnce(const std::vector<std::string>& prologue, const char* sql,
                          const std::vector<Parameter>& parameters, const TransactionLimits& limits,
                          const Step* step);
  bool SendPlain(const char* text);
  bool Send(const std::vector<std::string>& prologue, const char* sql,
            const std::vector<Parameter>& parameters, bool commit);
  // `before`: how many statements come before the one that counts.
  QueryResult Receive(size_t before, const Step* step);
  // Of a statement that was done: the result, unless the answer to COMMIT says otherwise.
  QueryResult Committed(PGresult* result, PGresult* commit) const;
  // The result of the next statement of the pipeline, or null if the connection broke.
  PGresult* NextResult();
  // PQgetResult, with an end. It is null, too, if the connection broke.
  PGresult* GetResult();
  // Waits until PQgetResult does not block. False: the connection is broken, and error_ says why.
  bool Wait();
  // Waits for the socket. False if the time is over.
  bool WaitForSocket(bool sending, Clock::time_point until);
  void RollBack();
  std::string Error() const;
  static void OnNotice(void* connection, const PGresult* notice);

  PGconn* const connection_;
  const std::shared_ptr<CancelRequest> cancel_;
  int interrupt_;
  const TransactionLimits limits_;
  Clock::time_point deadline_ = Clock::time_point::max();       // of the transaction that runs
  Clock::time_point last_deadline_ = Clock::time_point::max();  // SetDeadline()
  std::string error_;                        // why the wait has ended; empty: see PQerrorMessage
  const std::vector<std::string> prologue_;  // with limits_
  bool usable_ = true;                       // nothing is left of an earlier transaction
  bool committing_ = false;                  // the answer to COMMIT is being read
  bool commit_warned_ = false;               // and it came with a warning
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_DATABASE_H_
