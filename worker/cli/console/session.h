// A user who has logged in: a connection to the database as that role.
//
// The password is used once, to connect. So a connection that is lost cannot be made again, and the
// session is over.
#ifndef POSTBOX_WORKER_CLI_CONSOLE_SESSION_H_
#define POSTBOX_WORKER_CLI_CONSOLE_SESSION_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "worker/cli/console/confirmation.h"
#include "worker/puller/database.h"

namespace postbox::cli {

class Session {
 public:
  // How many requests of a session may wait for its connection or use it.
  static constexpr int kMostRequests = 4;

  // `connection` may be null in tests.
  Session(std::string role, std::unique_ptr<puller::Connection> connection);

  const std::string& role() const { return role_; }
  const std::string& csrf() const { return csrf_; }
  const Confirmations& confirmations() const { return confirmations_; }
  // The connection is lost. Does not wait: one that runs a statement counts as alive.
  bool over();

  // One statement at a time, in a read-only transaction.
  puller::QueryResult Read(const std::string& sql, const std::vector<puller::Parameter>& values);
  // In one that may write. `step`: see puller::Connection::Execute().
  puller::QueryResult Act(const std::string& sql, const std::vector<puller::Parameter>& values,
                          const puller::Connection::Step* step = nullptr);
  // In one that may write, and takes minutes.
  puller::QueryResult ActLong(const std::string& sql, const std::vector<puller::Parameter>& values);

  // One request of the session, as long as it lives.
  class Use {
   public:
    explicit Use(Session* session)
        : session_(session), allowed_(++session->used_ <= kMostRequests) {}
    ~Use() { --session_->used_; }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    bool allowed() const { return allowed_; }

   private:
    Session* const session_;
    const bool allowed_;
  };

 private:
  puller::QueryResult Run(const std::string& sql, const std::vector<puller::Parameter>& values,
                          const puller::TransactionLimits& limits,
                          const puller::Connection::Step* step = nullptr);

  const std::string role_;
  const std::string csrf_;
  const Confirmations confirmations_;
  std::atomic<int> used_ = 0;
  std::atomic<bool> over_ = false;
  std::timed_mutex mutex_;
  const std::unique_ptr<puller::Connection> connection_;  // guarded
};

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_CONSOLE_SESSION_H_
