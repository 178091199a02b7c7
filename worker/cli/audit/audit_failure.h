// Why an audit cannot go on.
#ifndef POSTBOX_WORKER_CLI_AUDIT_AUDIT_FAILURE_H_
#define POSTBOX_WORKER_CLI_AUDIT_AUDIT_FAILURE_H_

#include <stdexcept>
#include <string>
#include <utility>

namespace postbox::cli {

// Why something was not compared, with a code for programs: no_connection, no_right, no_extension,
// not_found, nothing_to_compare, recorded_later, backlog, too_many, bad_state, busy or failed.
struct Obstacle {
  std::string code;
  std::string text;
  std::string remedy;
};

class AuditFailure : public std::runtime_error {
 public:
  explicit AuditFailure(Obstacle obstacle)
      : std::runtime_error(obstacle.text), obstacle_(std::move(obstacle)) {}
  const Obstacle& obstacle() const { return obstacle_; }

 private:
  Obstacle obstacle_;
};

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_AUDIT_AUDIT_FAILURE_H_
