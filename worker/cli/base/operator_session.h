// The connection of a subcommand to the database, as psql makes it: what --dsn leaves out is taken
// from PGHOST, PGPORT, PGDATABASE, PGUSER, PGPASSFILE, PGSERVICE and the other variables of libpq.
#ifndef POSTBOX_WORKER_CLI_BASE_OPERATOR_SESSION_H_
#define POSTBOX_WORKER_CLI_BASE_OPERATOR_SESSION_H_

#include <memory>
#include <string>

#include "worker/puller/database.h"

namespace postbox::cli {

// Its transactions are read-only. `name` is shown in pg_stat_activity. On failure returns null, and
// puts libpq's reason into `error`.
std::unique_ptr<puller::Connection> OpenDatabase(const std::string& dsn, const std::string& name,
                                                 std::string* error);

// What to do about an error of OpenDatabase().
std::string ConnectionRemedy(const std::string& error);

// The project and the address of Pub/Sub: of the command line, or else as the database has them.
struct PubSubPlace {
  std::string project;
  std::string endpoint;  // see proto/rules/endpoint.h; empty: the default
  std::string quota_project;
  bool endpoint_known = true;  // false: the role may not read postbox.endpoint
};

// What is empty in `place` is asked of the database. Returns an error; empty if there is none.
std::string AskForPlace(puller::Connection* connection, PubSubPlace* place);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_BASE_OPERATOR_SESSION_H_
