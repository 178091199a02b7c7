#include "extension/trust/worker_session.h"

#include "extension/base/postgres.h"

extern "C" {
#include <access/xact.h>
#include <catalog/pg_authid.h>
#include <miscadmin.h>
#include <utils/guc.h>
}

namespace postbox {

void PinWorkerSettings() {
  static constexpr const char* kPinned[][2] = {
      // The owner of a database may set them for it; with another role, nothing would be published.
      {"role", "none"},
      {"exit_on_error", "off"},
      // An event that leaves must be durable: the claim's commit flushes the emitter's as well. For
      // standbys events wait, and not the worker (standby_queue_logic.h).
      {"synchronous_commit", "local"},
      {"default_transaction_isolation", "read committed"},
      {"default_transaction_read_only", "off"},
      {"search_path", "pg_catalog, pg_temp"},
      {"statement_timeout", "0"},
      // One publication's table or row that is locked holds up all others for so long.
      {"lock_timeout", "100ms"},
      {"idle_in_transaction_session_timeout", "0"},
      {"idle_session_timeout", "0"},
      // For the triggers of owners. What would hide events is refused (row_security.h).
      {"row_security", "on"},
      // Names and types of columns are compared as text: "bytea" in quotes is another type.
      {"quote_all_identifiers", "off"},
      // What the owner of an outbox has put on it counts.
      {"session_replication_role", "origin"},
      {"jit", "off"},
      // A scan of a small table that costs as much as "off" below says is not worth processes.
      {"max_parallel_workers_per_gather", "0"},
      // One plan for each statement whatever the statistics say (table_outbox_sql.h).
      {"enable_indexscan", "on"},
      {"enable_indexonlyscan", "on"},
      {"enable_tidscan", "on"},
      {"enable_nestloop", "on"},
      {"enable_seqscan", "off"},
      {"enable_bitmapscan", "off"},
      {"enable_sort", "off"},
      {"enable_hashjoin", "off"},
      {"enable_mergejoin", "off"},
      {"plan_cache_mode", "force_generic_plan"},
  };
  for (const auto& [name, value] : kPinned) {
    SetConfigOption(name, value, PGC_SUSET, PGC_S_OVERRIDE);
  }
}

namespace {

// Since 17 a time-out of transactions may be set for a database. It ends the process, not only the
// transaction, so it must be gone before the first one.
void PinTransactionTimeout() {
  constexpr char kName[] = "transaction_timeout";
  if (FindSetting(kName) != nullptr) SetConfigOption(kName, "0", PGC_SUSET, PGC_S_OVERRIDE);
}

// A database may also be set to another user from the start (session_authorization). That it is not
// so any more takes the catalogs, other than the settings of PinWorkerSettings().
void PinUser() {
  StartTransactionCommand();
  const char* superuser = GetUserNameFromId(BOOTSTRAP_SUPERUSERID, false);
  SetConfigOption("session_authorization", superuser, PGC_SUSET, PGC_S_OVERRIDE);
  CommitTransactionCommand();
}

}  // namespace

void PinWorkerSession() {
  PinTransactionTimeout();
  PinUser();
  PinWorkerSettings();
}

}  // namespace postbox
