// One of the two databases of an audit: statements that answer or end the audit.
#ifndef POSTBOX_WORKER_CLI_AUDIT_SIDE_H_
#define POSTBOX_WORKER_CLI_AUDIT_SIDE_H_

#include <memory>
#include <string>
#include <vector>

#include "worker/cli/audit/audit_failure.h"
#include "worker/puller/database.h"

namespace postbox::cli {

// Where the data of a server is. If it went back to an earlier moment, by a restore or because a
// standby was promoted that had not received everything, what was proven holds no more.
struct History {
  int64_t timeline = 0;
  int64_t wal = 0;  // how far the WAL reaches

  bool Continues(const History& before) const {
    return timeline == before.timeline && wal >= before.wal;
  }
};

class Side {
 public:
  // `role`: source or reader, for messages. Throws AuditFailure.
  Side(std::string role, const std::string& dsn);

  // Read-only. Both throw AuditFailure.
  puller::QueryResult Ask(const char* sql, const std::vector<puller::Parameter>& parameters = {});
  // Returns an error as it is.
  puller::QueryResult Try(const char* sql, const std::vector<puller::Parameter>& parameters) {
    return connection_->Execute(sql, parameters);
  }
  puller::QueryResult Change(const char* sql, const std::vector<puller::Parameter>& parameters);
  // Returns an error as it is.
  puller::QueryResult TryChange(const char* sql, const std::vector<puller::Parameter>& parameters);

  const std::string& database() const { return database_; }
  // The clock of the server minus that of this machine, in microseconds: known up to `doubt`.
  int64_t clock_offset() const { return clock_offset_; }
  int64_t clock_doubt() const { return clock_doubt_; }

 private:
  void CheckExtension();
  void MeasureClock();
  [[noreturn]] void Throw(const puller::QueryResult& failed) const;

  const std::string role_;
  std::unique_ptr<puller::Connection> connection_;
  std::string database_;
  int64_t clock_offset_ = 0;
  int64_t clock_doubt_ = 0;
};

// Ids as a parameter of type uuid[], to be cast.
puller::Parameter IdArray(const std::vector<std::string>& ids);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_AUDIT_SIDE_H_
