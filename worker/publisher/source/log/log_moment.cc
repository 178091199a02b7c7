#include "worker/publisher/source/log/log_moment.h"

#include "extension/base/spi.h"

extern "C" {
#include <access/xlog_internal.h>
}

namespace postbox::publisher {
namespace {

FullXid Widen(TransactionId xid, FullTransactionId next) {
  uint32 epoch = EpochFromFullTransactionId(next);
  // It is older than the next one; if its number is greater, it is of the epoch before.
  if (xid > XidFromFullTransactionId(next)) --epoch;
  return U64FromFullTransactionId(FullTransactionIdFromEpochAndXid(epoch, xid));
}

}  // namespace

SnapshotGuard::SnapshotGuard() {
  Pg([] { PushActiveSnapshot(GetTransactionSnapshot()); });
}

SnapshotGuard::~SnapshotGuard() {
  if (std::uncaught_exceptions() == 0) PopActiveSnapshot();
}

// Not SELECT last_value FROM the sequence: nextval() shows there, for a moment, the value that it
// writes to WAL, which is up to 32 ahead, and a high-water mark that is too high loses events. The
// function reads under the lock.
int64 LastValue(Oid sequence) {
  return Pg([&]() -> int64 {
    LOCAL_FCINFO(call, 1);
    InitFunctionCallInfoData(*call, nullptr, 1, InvalidOid, nullptr, nullptr);
    call->args[0] = {ObjectIdGetDatum(sequence), false};
    const Datum value = pg_sequence_last_value(call);
    return call->isnull ? 0 : DatumGetInt64(value);
  });
}

LogMoment TakeMoment(int64 last_seq) {
  const Snapshot active = GetActiveSnapshot();
  const FullTransactionId next = ReadNextFullTransactionId();
  LogMoment moment;
  moment.hwm = moment.last_seq = last_seq;
  moment.next_xid = U64FromFullTransactionId(next);
  moment.snapshot.xmin = Widen(active->xmin, next);
  moment.snapshot.xmax = Widen(active->xmax, next);
  for (uint32 i = 0; i < active->xcnt; ++i) {
    moment.snapshot.xip.push_back(Widen(active->xip[i], next));
  }
  std::sort(moment.snapshot.xip.begin(), moment.snapshot.xip.end());
  return moment;
}

XLogRecPtr FlushVisibleWal() {
  return Pg([] {
    XLogRecPtr end = GetXLogInsertRecPtr();
    // At the start of a page this is behind the header of a page that has not been begun, up to
    // which WAL cannot be flushed.
    if (end % XLOG_BLCKSZ == SizeOfXLogShortPHD || end % wal_segment_size == SizeOfXLogLongPHD) {
      end -= end % XLOG_BLCKSZ;
    }
    XLogFlush(end);
    return end;
  });
}

// An xid8 is its 64 bits.
Datum XidValue(FullXid xid) { return UInt64GetDatum(xid); }
Datum XidArrayValue(const std::vector<FullXid>& xids) {
  return Int64ArrayValue({xids.begin(), xids.end()}, XID8OID);
}

}  // namespace postbox::publisher
