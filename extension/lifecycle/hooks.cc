#include "extension/lifecycle/hooks.h"

#include "extension/base/postgres.h"
#include "extension/lifecycle/commit_counts.h"
#include "extension/lifecycle/wakeup.h"
#include "extension/shared/shared_state.h"

extern "C" {
#include <catalog/objectaccess.h>
#include <commands/defrem.h>
#include <nodes/parsenodes.h>
#include <tcop/utility.h>
#include <utils/fmgroids.h>
}

namespace postbox {
namespace {

// A session that holds a database waits this long for its workers to leave.
constexpr int kLeaveTimeoutMs = 10000;

ProcessUtility_hook_type next_process_utility = nullptr;
object_access_hook_type next_object_access = nullptr;

// The configuration tables of this database while COMMIT PREPARED runs, and whether a message about
// one of them has come since it began.
ConfigRelations prepared_config;
bool prepared_config_changed = false;

// Whether this session may have written holds; they are removed when the transaction ends.
bool holding = false;
// The database whose workers are restarted at commit, since its settings changed. The launcher is
// told as well: there may be none, and the setting may be postbox.publishers.
Oid restart_at_commit = InvalidOid;

void ReleaseHolds() {
  LWLockAcquire(SharedStateLock(), LW_EXCLUSIVE);
  for (Hold& hold : shared_state()->holds) {
    if (hold.holder == MyProcPid) hold = Hold{InvalidOid, 0};
  }
  LWLockRelease(SharedStateLock());
  holding = false;
  WakeLauncher();
}

// Must not raise an error. A session that is terminated aborts its transaction, so it comes here
// too.
void ReleaseHoldsAtTransactionEnd(XactEvent event, void* /*argument*/) {
  if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
    return;
  if (holding) ReleaseHolds();
  if (OidIsValid(restart_at_commit)) {
    if (event == XACT_EVENT_COMMIT) {
      StopPublishers(restart_at_commit);
      ChangeDatabase(restart_at_commit);
    }
    restart_at_commit = InvalidOid;
  }
}

void WatchTransactionEnd() {
  static bool registered = false;
  if (registered) return;
  RegisterXactCallback(ReleaseHoldsAtTransactionEnd, nullptr);
  registered = true;
}

bool AddHold(Oid database) {
  bool added = false;
  LWLockAcquire(SharedStateLock(), LW_EXCLUSIVE);
  for (Hold& hold : shared_state()->holds) {
    if (hold.database == InvalidOid) {
      hold = Hold{database, MyProcPid};
      added = true;
      break;
    }
  }
  LWLockRelease(SharedStateLock());
  return added;
}

// Holds the database `name` until the transaction ends, and waits until its workers have left
// (hooks.h). Does nothing if the server is going to refuse the statement.
void HoldDatabase(const char* name) {
  if (name == nullptr) return;
  const Oid database = get_database_oid(name, true);
  if (!OidIsValid(database) || database == MyDatabaseId || !OwnsDatabase(database, GetUserId())) {
    return;
  }
  static uint32 wait_event = 0;
  if (wait_event == 0) wait_event = WaitEvent("PostboxWorkersLeave");
  WatchTransactionEnd();
  holding = true;
  if (!AddHold(database)) return;  // no room: the server's own check remains
  StopPublishers(database);
  const TimestampTz deadline = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), kLeaveTimeoutMs);
  ConditionVariable* left = &shared_state()->worker_left;
  ConditionVariablePrepareToSleep(left);
  while (HasPublishers(database)) {
    const long remaining = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), deadline);
    if (remaining <= 0) break;
    ConditionVariableTimedSleep(left, remaining, wait_event);
  }
  ConditionVariableCancelSleep();
}

// The option `name` of a statement, nullptr if it is not there.
DefElem* FindOption(List* options, const char* name) {
  ListCell* cell;
  foreach (cell, options) {
    auto* option = static_cast<DefElem*>(lfirst(cell));
    if (std::strcmp(option->defname, name) == 0) return option;
  }
  return nullptr;
}

void BeforeCreateDatabase(const CreatedbStmt* statement) {
  // The default is template1, in which no worker runs.
  DefElem* option = FindOption(statement->options, "template");
  if (option != nullptr && option->arg != nullptr) HoldDatabase(defGetString(option));
}

// If the statement is about a setting of Postbox, the workers of the database restart at commit.
void BeforeAlterDatabaseSet(const AlterDatabaseSetStmt* statement) {
  const VariableSetStmt* setting = statement->setstmt;
  const bool ours = setting->kind == VAR_RESET_ALL ||
                    (setting->name != nullptr && pg_strncasecmp(setting->name, "postbox.", 8) == 0);
  if (!ours) return;
  const Oid database = get_database_oid(statement->dbname, true);
  if (!OidIsValid(database) || !OwnsDatabase(database, GetUserId())) return;
  WatchTransactionEnd();
  restart_at_commit = database;
}

void RelationInvalidated(Datum /*argument*/, Oid relation) {
  if (!OidIsValid(relation) || prepared_config.Has(relation)) prepared_config_changed = true;
}

// See hooks.h. After an error the next COMMIT PREPARED starts with a clear mark.
void BeforeCommitPrepared() {
  static bool registered = false;
  if (!registered) {
    CacheRegisterRelcacheCallback(RelationInvalidated, Datum{0});
    registered = true;
  }
  prepared_config = FindConfigRelations();
  prepared_config_changed = false;
}

void AfterCommitPrepared() {
  AcceptInvalidationMessages();
  if (prepared_config_changed) ConfigChangedAtCommit();
  prepared_config = {};
}

bool IsCommitPrepared(const Node* statement) {
  return IsA(statement, TransactionStmt) &&
         reinterpret_cast<const TransactionStmt*>(statement)->kind == TRANS_STMT_COMMIT_PREPARED;
}

// What is done or requested before the server runs the statement. If the statement fails, the abort
// clears the requests.
void Before(Node* statement) {
  switch (nodeTag(statement)) {
    case T_DropdbStmt:
      HoldDatabase(reinterpret_cast<DropdbStmt*>(statement)->dbname);
      DatabasesChangedAtCommit();
      break;
    case T_CreatedbStmt:
      BeforeCreateDatabase(reinterpret_cast<CreatedbStmt*>(statement));
      DatabasesChangedAtCommit();
      break;
    case T_RenameStmt: {
      auto* rename = reinterpret_cast<RenameStmt*>(statement);
      if (rename->renameType != OBJECT_DATABASE) break;
      HoldDatabase(rename->subname);
      DatabasesChangedAtCommit();
      break;
    }
    case T_AlterDatabaseStmt: {
      auto* alter = reinterpret_cast<AlterDatabaseStmt*>(statement);
      if (FindOption(alter->options, "tablespace") != nullptr) HoldDatabase(alter->dbname);
      DatabasesChangedAtCommit();  // ALLOW_CONNECTIONS, IS_TEMPLATE
      break;
    }
    case T_AlterDatabaseSetStmt:
      BeforeAlterDatabaseSet(reinterpret_cast<AlterDatabaseSetStmt*>(statement));
      break;
    case T_TransactionStmt:
      if (IsCommitPrepared(statement)) {
        RequestPublishersAtCommit();
        NotifyAppliedAtCommit();
        BeforeCommitPrepared();
      }
      break;
    default:
      break;
  }
}

extern "C" {

static void HookProcessUtility(PlannedStmt* planned, const char* query, bool read_only_tree,
                               ProcessUtilityContext context, ParamListInfo parameters,
                               QueryEnvironment* environment, DestReceiver* destination,
                               QueryCompletion* completion) {
  // Asked before: afterwards the parse tree may have been freed.
  const bool commit_prepared = IsCommitPrepared(planned->utilityStmt);
  Before(planned->utilityStmt);
  const ProcessUtility_hook_type next =
      next_process_utility != nullptr ? next_process_utility : standard_ProcessUtility;
  next(planned, query, read_only_tree, context, parameters, environment, destination, completion);
  if (commit_prepared) AfterCommitPrepared();
}

}  // extern "C"

// Whether the name of extension `id` is "postbox". SnapshotSelf sees a row that this command itself
// has written; get_extension_name() does not.
bool IsPostbox(Oid id) {
  Relation catalog = table_open(ExtensionRelationId, AccessShareLock);
  ScanKeyData key;
  ScanKeyInit(&key, Anum_pg_extension_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(id));
  SysScanDesc scan = systable_beginscan(catalog, ExtensionOidIndexId, true, SnapshotSelf, 1, &key);
  HeapTuple tuple = systable_getnext(scan);
  const bool result =
      HeapTupleIsValid(tuple) &&
      std::strcmp(NameStr(reinterpret_cast<Form_pg_extension>(GETSTRUCT(tuple))->extname),
                  "postbox") == 0;
  systable_endscan(scan);
  table_close(catalog, AccessShareLock);
  return result;
}

extern "C" {

static void HookObjectAccess(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id,
                             void* argument) {
  if (next_object_access != nullptr) {
    next_object_access(access, class_id, object_id, sub_id, argument);
  }
  if (class_id != ExtensionRelationId) return;
  if (access != OAT_POST_CREATE && access != OAT_POST_ALTER && access != OAT_DROP) return;
  if (!IsPostbox(object_id)) return;
  ExtensionChangedAtCommit();
  if (access == OAT_DROP) ForgetDatabaseAtCommit();
}

}  // extern "C"

}  // namespace

void InstallHooks() {
  next_process_utility = ProcessUtility_hook;
  ProcessUtility_hook = HookProcessUtility;
  next_object_access = object_access_hook;
  object_access_hook = HookObjectAccess;
}

}  // namespace postbox
