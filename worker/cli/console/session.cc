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

}  // namespace

Session::Session(std::string role, std::unique_ptr<puller::Connection> connection)
    : role_(std::move(role)),
      csrf_(RandomSecret()),
      confirmations_(RandomSecret()),
      connection_(std::move(connection)) {}

puller::QueryResult Session::Read(const std::string& sql,
                                  const std::vector<puller::Parameter>& values) {
  return Run(sql, values, kReading);
}

puller::QueryResult Session::Act(const std::string& sql,
                                 const std::vector<puller::Parameter>& values) {
  return Run(sql, values, kActing);
}

puller::QueryResult Session::Run(const std::string& sql,
                                 const std::vector<puller::Parameter>& values,
                                 const puller::TransactionLimits& limits) {
  const std::lock_guard<std::mutex> lock(mutex_);
  puller::QueryResult result = connection_->Execute(sql.c_str(), values, &limits);
  if (!result.ok() && !connection_->alive()) over_ = true;
  return result;
}

}  // namespace postbox::cli
