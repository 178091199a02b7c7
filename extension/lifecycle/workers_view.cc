// postbox.list_workers(): the worker slots in use, and the databases that wait for one, for the
// view postbox.workers.
#include "extension/base/guard.h"
#include "extension/base/postgres.h"
#include "extension/shared/shared_state.h"

namespace postbox {
namespace {

// What one row shows, copied out of shared memory at the first call.
struct WorkerRow {
  Oid database;
  pid_t pid;
  int32 ordinal;
  SlotState state;
  uint64 token;
  TimestampTz started_at;
};

struct WorkerRows {
  int count;
  WorkerRow rows[kMaxWorkers + kMaxUnserved];
};

WorkerRows* TakeWorkerRows() {
  auto* result = static_cast<WorkerRows*>(palloc0(sizeof(WorkerRows)));
  SharedState* state = shared_state();
  if (state == nullptr) return result;
  LWLockAcquire(SharedStateLock(), LW_SHARED);
  for (WorkerSlot& slot : state->workers) {
    if (slot.state == SlotState::kFree || slot.state == SlotState::kExited) continue;
    result->rows[result->count++] = WorkerRow{pg_atomic_read_u32(&slot.database),
                                              slot.pid,
                                              slot.ordinal,
                                              slot.state,
                                              slot.token,
                                              slot.started_at};
  }
  const uint32 unserved = pg_atomic_read_u32(&state->unserved_count);
  for (uint32 i = 0; i < std::min<uint32>(unserved, kMaxUnserved); ++i) {
    // As a slot that is free: there is none.
    result->rows[result->count++] = WorkerRow{state->unserved[i], 0, 0, SlotState::kFree, 0, 0};
  }
  LWLockRelease(SharedStateLock());
  return result;
}

const char* StateName(SlotState state) {
  if (state == SlotState::kFree) return "unserved";
  return state == SlotState::kRunning ? "running" : "starting";
}

Datum Tuple(TupleDesc descriptor, const WorkerRow& row) {
  const bool attached = row.pid != 0;
  char token[kLockTokenSize];
  FormatLockToken(row.token, token);
  Datum values[] = {ObjectIdGetDatum(row.database), Int32GetDatum(row.pid),
                    Int32GetDatum(row.ordinal),     CStringGetTextDatum(StateName(row.state)),
                    CStringGetTextDatum(token),     TimestampTzGetDatum(row.started_at)};
  bool nulls[] = {false, !attached, false, false, !attached, !attached};
  return HeapTupleGetDatum(heap_form_tuple(descriptor, values, nulls));
}

}  // namespace
}  // namespace postbox

// No C++ object is alive in it, so errors may pass through as they are.
POSTBOX_FUNCTION(list_workers) {
  using namespace postbox;  // NOLINT(google-build-using-namespace): the entry has no namespace
  FuncCallContext* context;
  if (SRF_IS_FIRSTCALL()) {
    context = SRF_FIRSTCALL_INIT();
    MemoryContext old = MemoryContextSwitchTo(context->multi_call_memory_ctx);
    TupleDesc descriptor;
    if (get_call_result_type(fcinfo, nullptr, &descriptor) != TYPEFUNC_COMPOSITE) {
      ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                      errmsg("postbox.list_workers() must be called as a table function")));
    }
    context->tuple_desc = BlessTupleDesc(descriptor);
    context->user_fctx = TakeWorkerRows();
    MemoryContextSwitchTo(old);
  }
  context = SRF_PERCALL_SETUP();
  const auto* rows = static_cast<WorkerRows*>(context->user_fctx);
  if (context->call_cntr >= static_cast<uint64>(rows->count)) SRF_RETURN_DONE(context);
  // The macro counts call_cntr up before it evaluates its argument.
  const Datum tuple = Tuple(context->tuple_desc, rows->rows[context->call_cntr]);
  SRF_RETURN_NEXT(context, tuple);
}
