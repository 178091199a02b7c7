// What the launcher does with the worker slots in shared memory: it reserves one for a start, asks
// the postmaster for the worker, reads why the worker ended, and frees the slot. README.md beside
// this file has the states.
#ifndef POSTBOX_EXTENSION_LIFECYCLE_WORKER_SLOTS_H_
#define POSTBOX_EXTENSION_LIFECYCLE_WORKER_SLOTS_H_

#include "extension/base/postgres.h"
#include "extension/shared/shared_state.h"

struct BackgroundWorkerHandle;

namespace postbox {

struct Reservation {
  int slot;  // -1: postbox.max_workers are in use
  uint64 launch;
};

// kFree -> kStarting: the slot is this start's until its worker has come and gone, or GiveBack().
Reservation ReserveSlot(Oid database, int ordinal);
// kStarting -> kFree: there is no worker.
void GiveBack(const Reservation& reservation);

// Asks the postmaster for the worker of a reserved slot. nullptr if the server has no room for
// another background worker.
BackgroundWorkerHandle* RegisterWorker(Oid database, int ordinal, const Reservation& reservation);

// What a worker's slot said when the worker had ended.
struct ExitReport {
  bool attached;  // the worker came up
  ExitReason reason;
  bool epoch_is_current;  // no CREATE or DROP EXTENSION committed since the worker looked
  bool held;              // a session holds the database
  int publishers;         // as in WorkerSlot
  bool work_left;         // there may be something to publish
};
// Reads it and frees the slot.
ExitReport TakeReport(Oid database, int slot);

// What a slot says while its worker is there.
struct SlotNews {
  bool running;
  int publishers;
  std::chrono::milliseconds idle;  // 0: it has work, or is not running yet
};
SlotNews ReadSlot(int slot);

// Workers of an earlier launcher: SIGTERM, and what has not come up is revoked.
void StopOrphans();
// Frees the slots of those that have ended. `ours`: slots that are not theirs.
void FreeOrphanSlots(const std::array<bool, kMaxWorkers>& ours);

void NoteStartProblem(StartProblem problem);

// Shows sessions which databases are unserved.
void ShowUnserved(const std::vector<Oid>& databases);

// Whether something was committed in `database` while no worker was attached, and that this is
// known now.
bool WorkIsMarked(Oid database);
void ClearWorkMark(Oid database);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_LIFECYCLE_WORKER_SLOTS_H_
