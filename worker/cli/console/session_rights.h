// What the role of a session may see besides the rows of the database, and what it may do: the same
// conditions for the page, which offers nothing else, and for each answer.
#ifndef POSTBOX_WORKER_CLI_CONSOLE_SESSION_RIGHTS_H_
#define POSTBOX_WORKER_CLI_CONSOLE_SESSION_RIGHTS_H_

#include <optional>

#include "worker/cli/console/call.h"

namespace postbox::cli {

// Conditions in SQL.
#define POSTBOX_SEES_METRICS "has_table_privilege('postbox.metrics', 'SELECT')"
#define POSTBOX_SEES_WORKERS "has_table_privilege('postbox.workers', 'SELECT')"
#define POSTBOX_SEES_PROVISION "postbox.is_operator() OR pg_has_role('pg_monitor', 'USAGE')"

// What the role may do, as a page needs it: an object of truth values.
Answer ReadRights(Session* session);

// Nothing after an error, which is put into `refusal`.
std::optional<bool> Holds(Session* session, const char* condition, Answer* refusal);

// The answer to a role that lacks the right to `what`.
Answer RefuseRole(const char* what, const char* remedy);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_CONSOLE_SESSION_RIGHTS_H_
