#include "worker/publisher/base/standby.h"

extern "C" {
#include <replication/syncrep.h>
#include <replication/walsender.h>
#include <replication/walsender_private.h>
}

namespace postbox::publisher {

XLogRecPtr ConfirmedByStandbys() {
  // As the server itself decides whether a COMMIT has to wait.
  if (max_wal_senders == 0 || SyncRepStandbyNames == nullptr || *SyncRepStandbyNames == '\0') {
    return PG_UINT64_MAX;
  }
  LWLockAcquire(SyncRepLock, LW_SHARED);
  const XLogRecPtr position = WalSndCtl->lsn[SYNC_REP_WAIT_FLUSH];
  LWLockRelease(SyncRepLock);
  return position;
}

}  // namespace postbox::publisher
