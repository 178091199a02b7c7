// Every difference between the PostgreSQL versions that Postbox supports (14 to 18; 19 as far as it
// is known), and nothing else: no other file tests PG_VERSION_NUM (extension/base/postgres.h
// excepted, for headers that do not exist everywhere).
//
// Included by extension/base/postgres.h; do not include it before PostgreSQL's headers.
#ifndef POSTBOX_EXTENSION_BASE_VERSION_H_
#define POSTBOX_EXTENSION_BASE_VERSION_H_

#ifndef PG_VERSION_NUM
#error "include extension/base/postgres.h instead"
#endif

#if PG_VERSION_NUM < 140000
#error "Postbox needs PostgreSQL 14 or newer"
#endif

// 16 made PGDLLEXPORT mean default visibility; before, it is empty on Unix, and with
// -fvisibility=hidden nothing would be found in the module.
#if PG_VERSION_NUM < 160000
#undef PGDLLEXPORT
#define PGDLLEXPORT __attribute__((visibility("default")))
#endif

// Declares a SQL-callable function; its definition follows: POSTBOX_FUNCTION(f) { return
// postbox::Guarded([&] { ... }); } (PG_FUNCTION_INFO_V1 exports the function itself only since 16.)
#define POSTBOX_FUNCTION(name)              \
  extern "C" {                              \
  PGDLLEXPORT Datum name(PG_FUNCTION_ARGS); \
  PG_FUNCTION_INFO_V1(name);                \
  }                                         \
  Datum name([[maybe_unused]] PG_FUNCTION_ARGS)

namespace postbox {

// 15 reserves the prefix permanently; 14 only warns about what is there already.
inline void ReserveGucPrefix(const char* prefix) {
#if PG_VERSION_NUM >= 150000
  MarkGUCPrefixReserved(prefix);
#else
  EmitWarningsOnPlaceholders(prefix);
#endif
}

// Memory for what a check hook of a setting passes on in `extra`; the server frees it. nullptr if
// there is none. (16 has a memory context for settings.)
inline void* AllocateSettingExtra(size_t size) {
#if PG_VERSION_NUM >= 160000
  return guc_malloc(LOG, size);
#else
  return std::malloc(size);
#endif
}

// Access rights on a schema and a function, and ownership of relations and databases: 16 replaced a
// function per catalog by one.
inline AclResult SchemaAclCheck(Oid schema, Oid role, AclMode mode) {
#if PG_VERSION_NUM >= 160000
  return object_aclcheck(NamespaceRelationId, schema, role, mode);
#else
  return pg_namespace_aclcheck(schema, role, mode);
#endif
}

inline AclResult FunctionAclCheck(Oid function, Oid role, AclMode mode) {
#if PG_VERSION_NUM >= 160000
  return object_aclcheck(ProcedureRelationId, function, role, mode);
#else
  return pg_proc_aclcheck(function, role, mode);
#endif
}

inline bool OwnsRelation(Oid relation, Oid role) {
#if PG_VERSION_NUM >= 160000
  return object_ownercheck(RelationRelationId, relation, role);
#else
  return pg_class_ownercheck(relation, role);
#endif
}

inline bool OwnsDatabase(Oid database, Oid role) {
#if PG_VERSION_NUM >= 160000
  return object_ownercheck(DatabaseRelationId, database, role);
#else
  return pg_database_ownercheck(database, role);
#endif
}

// Whether `member` may become `role`. 16 tells apart who has a role's rights and who may become it.
inline bool MemberCanSetRole(Oid member, Oid role) {
#if PG_VERSION_NUM >= 160000
  return member_can_set_role(member, role);
#else
  return is_member_of_role(member, role);
#endif
}

// The number of this process in the proc array, and the process with a number (17 gave the number a
// separate type and variable).
inline int MyProcIndex() {
#if PG_VERSION_NUM >= 170000
  return MyProcNumber;
#else
  return MyProc->pgprocno;
#endif
}

inline PGPROC* ProcAt(int index) {
#if PG_VERSION_NUM >= 170000
  return GetPGProcByNumber(index);
#else
  return &ProcGlobal->allProcs[index];
#endif
}

// A wait event that shows under its own name in pg_stat_activity where the server can do that (17),
// else as "Extension". The name must be a literal. Call it at first use, not in _PG_init.
inline uint32 WaitEvent([[maybe_unused]] const char* name) {
#if PG_VERSION_NUM >= 170000
  return WaitEventExtensionNew(name);
#else
  return PG_WAIT_EXTENSION;
#endif
}

// 17 ties a wait event set to a resource owner; nullptr means that it lives until it is freed, as
// before. (A macro, because storage/latch.h does not show the function in every version.)
#if PG_VERSION_NUM >= 170000
#define POSTBOX_CREATE_WAIT_EVENT_SET(events) CreateWaitEventSet(nullptr, events)
#else
#define POSTBOX_CREATE_WAIT_EVENT_SET(events) CreateWaitEventSet(TopMemoryContext, events)
#endif

// Runs a query to its end; 18 knows by itself that it runs once. (A macro, because the executor's
// headers are not included here.)
#if PG_VERSION_NUM >= 180000
#define POSTBOX_RUN_QUERY(query) ExecutorRun(query, ForwardScanDirection, 0)
#else
#define POSTBOX_RUN_QUERY(query) ExecutorRun(query, ForwardScanDirection, 0, true)
#endif

// The columns that a planned INSERT needs a right on. 16 keeps rights apart from the range table.
// (A macro, because the planner's headers are not included here.)
#if PG_VERSION_NUM >= 160000
#define POSTBOX_INSERTED_COLUMNS(plan) \
  linitial_node(RTEPermissionInfo, (plan)->permInfos)->insertedCols
#else
#define POSTBOX_INSERTED_COLUMNS(plan) linitial_node(RangeTblEntry, (plan)->rtable)->insertedCols
#endif

// Checks the rights that a planned statement needs, of the current user. (Macros again.)
#if PG_VERSION_NUM >= 160000
#define POSTBOX_CHECK_RIGHTS(plan) ExecCheckPermissions((plan)->rtable, (plan)->permInfos, true)
#else
#define POSTBOX_CHECK_RIGHTS(plan) ExecCheckRTPerms((plan)->rtable, true)
#endif

// expression_tree_walker(). Before 16 its walker has no types of arguments, which is none of C++.
#if PG_VERSION_NUM >= 160000
#define POSTBOX_WALK_EXPRESSION(node, walker, context) expression_tree_walker(node, walker, context)
#else
#define POSTBOX_WALK_EXPRESSION(node, walker, context)                                             \
  expression_tree_walker(node, reinterpret_cast<bool (*)()>(reinterpret_cast<void (*)()>(walker)), \
                         context)
#endif

// What table_tuple_update() says of the indexes of the table, and whether those that are no
// summaries need entries. 16 tells apart which do.
#if PG_VERSION_NUM >= 160000
#define POSTBOX_UPDATE_INDEXES TU_UpdateIndexes
#define POSTBOX_NEEDS_INDEX_ENTRIES(update) ((update) == TU_All)
#else
#define POSTBOX_UPDATE_INDEXES bool
#define POSTBOX_NEEDS_INDEX_ENTRIES(update) (update)
#endif

// 18 counts what an index scan does, 19 gives it options.
#if PG_VERSION_NUM >= 190000
#define POSTBOX_BEGIN_INDEX_SCAN(table, index, snapshot, keys) \
  index_beginscan(table, index, snapshot, nullptr, keys, 0, 0)
#elif PG_VERSION_NUM >= 180000
#define POSTBOX_BEGIN_INDEX_SCAN(table, index, snapshot, keys) \
  index_beginscan(table, index, snapshot, nullptr, keys, 0)
#else
#define POSTBOX_BEGIN_INDEX_SCAN(table, index, snapshot, keys) \
  index_beginscan(table, index, snapshot, keys, 0)
#endif

// The setting of this name, or nullptr. It is one of the server's own. (16 has a function for it.)
inline config_generic* FindSetting(const char* name) {
#if PG_VERSION_NUM >= 160000
  return find_option(name, false, true, 0);
#else
  config_generic** settings = get_guc_variables();
  for (int i = 0; i < GetNumConfigOptions(); ++i) {
    if (std::strcmp(settings[i]->name, name) == 0) return settings[i];
  }
  return nullptr;
#endif
}

// An update of a row that waits for others' updates; 19 gives it options.
#if PG_VERSION_NUM >= 190000
#define POSTBOX_TUPLE_UPDATE(table, place, row, command, snapshot, failure, mode, indexes)    \
  table_tuple_update(table, place, row, command, 0, snapshot, InvalidSnapshot, true, failure, \
                     mode, indexes)
#else
#define POSTBOX_TUPLE_UPDATE(table, place, row, command, snapshot, failure, mode, indexes)       \
  table_tuple_update(table, place, row, command, snapshot, InvalidSnapshot, true, failure, mode, \
                     indexes)
#endif

// Finds and locks a row by an index; 19 can leave duplicates out.
#if PG_VERSION_NUM >= 190000
#define POSTBOX_FIND_BY_INDEX(table, index, mode, search, found) \
  RelationFindReplTupleByIndex(table, index, false, mode, search, found)
#else
#define POSTBOX_FIND_BY_INDEX(table, index, mode, search, found) \
  RelationFindReplTupleByIndex(table, index, mode, search, found)
#endif

// The number of the transaction among those of this session; 0 outside of one. (17 moved it.)
inline LocalTransactionId CurrentLocalTransaction() {
  if (MyProc == nullptr) return InvalidLocalTransactionId;
#if PG_VERSION_NUM >= 170000
  return MyProc->vxid.lxid;
#else
  return MyProc->lxid;
#endif
}

// Whether this session replays what another server did. (19 keeps that in one struct.)
#if PG_VERSION_NUM >= 190000
#define POSTBOX_REPLAYS_REPLICATION (replorigin_xact_state.origin != InvalidReplOriginId)
#else
#define POSTBOX_REPLAYS_REPLICATION (replorigin_session_origin != InvalidRepOriginId)
#endif

// What callbacks of the system caches are told. 19 gave it a type.
#if PG_VERSION_NUM >= 190000
using SystemCacheId = SysCacheIdentifier;
#else
using SystemCacheId = int;
#endif

// The handler that ignores a signal. 19 gave handlers one more argument.
#if PG_VERSION_NUM >= 190000
#define POSTBOX_IGNORE_SIGNAL PG_SIG_IGN
#else
#define POSTBOX_IGNORE_SIGNAL SIG_IGN
#endif

// Makes a jsonb of an object; 19 keeps the result in the state. Inside Pg().
class JsonbObject {
 public:
  JsonbObject() { Push(WJB_BEGIN_OBJECT, nullptr); }
#if PG_VERSION_NUM >= 190000
  void Push(JsonbIteratorToken token, JsonbValue* value) { pushJsonbValue(&state_, token, value); }
  Jsonb* Finish() {
    Push(WJB_END_OBJECT, nullptr);
    return JsonbValueToJsonb(state_.result);
  }

 private:
  JsonbInState state_{};
#else
  void Push(JsonbIteratorToken token, JsonbValue* value) { pushJsonbValue(&state_, token, value); }
  Jsonb* Finish() { return JsonbValueToJsonb(pushJsonbValue(&state_, WJB_END_OBJECT, nullptr)); }

 private:
  JsonbParseState* state_ = nullptr;
#endif
};

// Raises an error unless the text is JSON, without looking at what its escapes stand for. 17 lets
// the caller keep the state of the parser.
inline void ParseJson(text* json) {
#if PG_VERSION_NUM >= 170000
  JsonLexContext state;
  JsonLexContext* lexer = makeJsonLexContext(&state, json, false);
#else
  JsonLexContext* lexer = makeJsonLexContext(json, false);
#endif
  pg_parse_json_or_ereport(lexer, &nullSemAction);
#if PG_VERSION_NUM >= 170000
  freeJsonLexContext(lexer);
#else
  pfree(lexer);
#endif
}

// Shared memory is requested in a separate hook since 15, before in _PG_init itself.
#if PG_VERSION_NUM >= 150000
#define POSTBOX_SHMEM_REQUEST_HOOK 1
#endif

}  // namespace postbox

// Begins the result of a function that returns rows, all of them at once. It came with 15.
#if PG_VERSION_NUM < 150000
inline void InitMaterializedSRF(FunctionCallInfo fcinfo, uint32 /*flags*/) {
  auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
  if (result == nullptr || !IsA(result, ReturnSetInfo) ||
      (result->allowedModes & SFRM_Materialize) == 0) {
    ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                    errmsg("set-valued function called in context that cannot accept a set")));
  }
  MemoryContext old = MemoryContextSwitchTo(result->econtext->ecxt_per_query_memory);
  TupleDesc row;
  if (get_call_result_type(fcinfo, nullptr, &row) != TYPEFUNC_COMPOSITE) {
    elog(ERROR, "return type must be a row type");
  }
  result->returnMode = SFRM_Materialize;
  result->setDesc = BlessTupleDesc(row);
  result->setResult =
      tuplestore_begin_heap((result->allowedModes & SFRM_Materialize_Random) != 0, false, work_mem);
  MemoryContextSwitchTo(old);
}
#endif

// What every module of Postgres must say. 18 also asks for a name and a version, which
// pg_get_loaded_modules() shows.
#if PG_VERSION_NUM >= 180000
#define POSTBOX_MODULE(module) PG_MODULE_MAGIC_EXT(.name = module, .version = POSTBOX_VERSION)
#else
#define POSTBOX_MODULE(module) PG_MODULE_MAGIC
#endif

#endif  // POSTBOX_EXTENSION_BASE_VERSION_H_
