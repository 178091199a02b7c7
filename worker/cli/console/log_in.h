// Log-in: a connection to the database of --dsn as the role of the user, with the user's password.
//
// The password must be what has let the role in. A server whose pg_hba.conf trusts the machine of
// the console, or takes its certificate or its operating-system user, would let in any user: such
// a log-in is refused. So is an empty password, for which libpq would look elsewhere.
#ifndef POSTBOX_WORKER_CLI_CONSOLE_LOG_IN_H_
#define POSTBOX_WORKER_CLI_CONSOLE_LOG_IN_H_

#include <memory>
#include <string>

#include "worker/cli/console/session.h"

namespace postbox::cli {

// `dsn` with another user and password, and nothing else from which libpq would take one; empty if
// it cannot be parsed, which `error` says.
std::string DsnOf(const std::string& dsn, const std::string& role, const std::string& password,
                  std::string* error);

// Null if it fails. `error` is for the log, and not for the user.
std::shared_ptr<Session> LogIn(const std::string& dsn, const std::string& role,
                               const std::string& password, int interrupt, std::string* error);
// As the role of --dsn itself: for a token.
std::shared_ptr<Session> LogInAsSelf(const std::string& dsn, int interrupt, std::string* error);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_CONSOLE_LOG_IN_H_
