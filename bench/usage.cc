// Also bench_begin_usage() and bench_end_usage(), for what a session does between the two: the
// latter returns buffers and bytes of WAL.
#include "bench/usage.h"

#include "extension/base/guard.h"

extern "C" {
#include <executor/instrument.h>
#include <utils/array.h>

PGDLLEXPORT Datum bench_begin_usage(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum bench_end_usage(PG_FUNCTION_ARGS);
PG_FUNCTION_INFO_V1(bench_begin_usage);
PG_FUNCTION_INFO_V1(bench_end_usage);
}

#include <valgrind/callgrind.h>

namespace postbox::bench {

namespace {

Usage SinceStart() {
  return {.buffers = pgBufferUsage.shared_blks_hit + pgBufferUsage.shared_blks_read,
          .wal = static_cast<int64_t>(pgWalUsage.wal_bytes)};
}

Usage at_begin;

}  // namespace

void BeginUsage() {
  at_begin = SinceStart();
  CALLGRIND_START_INSTRUMENTATION;
  CALLGRIND_ZERO_STATS;
}

Usage EndUsage() {
  CALLGRIND_STOP_INSTRUMENTATION;
  const Usage now = SinceStart();
  return {.buffers = now.buffers - at_begin.buffers, .wal = now.wal - at_begin.wal};
}

}  // namespace postbox::bench

Datum bench_begin_usage(PG_FUNCTION_ARGS) {
  (void)fcinfo;
  postbox::bench::BeginUsage();
  PG_RETURN_VOID();
}

Datum bench_end_usage(PG_FUNCTION_ARGS) {
  (void)fcinfo;
  const postbox::bench::Usage usage = postbox::bench::EndUsage();
  Datum values[] = {Int64GetDatum(usage.buffers), Int64GetDatum(usage.wal)};
  PG_RETURN_ARRAYTYPE_P(
      construct_array(values, 2, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}
