#include "worker/cli/console/session.h"

#include <utility>

#include "worker/cli/console/secret.h"

namespace postbox::cli {
namespace {

using std::chrono::seconds;

// A page has an answer within a second; what takes longer asks for too much.
constexpr puller::TransactionLimits kReading{.read_only = true,
                                             .statement_timeout = seconds(10),
                                             .lock_timeout = seconds(1),
                                             .answer_time = seconds(5)};
// A COMMIT may wait for a standby.
constexpr puller::TransactionLimits kActing{
    .statement_timeout = seconds(60), .lock_timeout = seconds(5), .answer_time = seconds(30)};
// finish_rebuild replaces all rows of a table.
constexpr puller::TransactionLimits kActingLong{
    .statement_timeout = seconds(600), .lock_timeout = seconds(5), .answer_time = seconds(30)};
// How long a request waits for another one of its session. It holds a thread meanwhile.
constexpr seconds kLongestWait{20};

}  // namespace

Session::Session(std::string role, std::unique_ptr<puller::Connection> connection)
    : role_(std::move(role)),
      csrf_(RandomSecret()),
      confirmations_(RandomSecret()),
      connection_(std::move(connection)) {}

bool Session::over() {
  if (over_ || !connection_) return over_;
  const std::unique_lock<std::timed_mutex> lock(mutex_, std::try_to_lock);
  if (lock.owns_lock() && !connection_->alive()) over_ = true;
  return over_;
}

puller::QueryResult Session::Read(const std::string& sql,
                                  const std::vector<puller::Parameter>& values) {
  return Run(sql, values, kReading);
}

puller::QueryResult Session::Act(const std::string& sql,
                                 const std::vector<puller::Parameter>& values,
                                 const puller::Connection::Step* step) {
  return Run(sql, values, kActing, step);
}

puller::QueryResult Session::ActLong(const std::string& sql,
                                     const std::vector<puller::Parameter>& values) {
  return Run(sql, values, kActingLong);
}

puller::QueryResult Session::Run(const std::string& sql,
                                 const std::vector<puller::Parameter>& values,
                                 const puller::TransactionLimits& limits,
                                 const puller::Connection::Step* step) {
  const std::unique_lock<std::timed_mutex> lock(mutex_, kLongestWait);
  if (!lock.owns_lock()) {
    return puller::QueryResult::Failure("55P03", "another request of the session still runs", true);
  }
  puller::QueryResult result = connection_->Execute(sql.c_str(), values, &limits, step);
  if (!result.ok() && !connection_->alive()) over_ = true;
  return result;
}

}  // namespace postbox::cli
