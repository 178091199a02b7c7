// What one step on an outbox, a transaction of the worker, may cost in time and memory.
//
// Code of the outbox's owner (triggers, policies, defaults, types) runs in the worker's only
// thread. If it sleeps, loops or eats memory, every other publication of the database would wait
// for it, or the server would be out of memory. So a timer looks at the step while it runs:
//
//   1. It takes longer than its time, or the process has grown by kStepMemory: its statement is
//      cancelled. The lane gets the error, and suspends the publication. What does not count, up to
//      nine times the step's time or a quarter of a lease, is when it was ready to run and others
//      had the processor, which is not the owner's doing: a busy machine, or a container that has
//      used up its quota.
//   2. It still runs a while later, since its code has caught the cancellation: the process ends
//      (FATAL, which nothing can catch). The outbox is noted in shared memory first, and the next
//      worker of the database suspends its publications before it claims anything.
//
// Code that never comes back to the server (a loop in a library of C) cannot be ended so. Only a
// superuser can install that.
#ifndef POSTBOX_WORKER_PUBLISHER_BASE_STEP_LIMIT_H_
#define POSTBOX_WORKER_PUBLISHER_BASE_STEP_LIMIT_H_

#include "extension/base/guard.h"

namespace postbox::publisher {

// Far above what a step needs that only does what Postbox does: postbox.max_outstanding_bytes and
// what the statements of a claim need beside it.
inline constexpr std::size_t kStepMemory = std::size_t{1} << 30;

// A step may take so long when the worker has to leave.
inline constexpr std::chrono::milliseconds kLeaveTime = std::chrono::seconds(1);

// Between a cancellation that is not obeyed and the end of the process.
inline constexpr std::chrono::milliseconds kStepGrace = std::chrono::seconds(1);

// The limits of one step at a time, on the main thread.
class StepLimit {
 public:
  // `time`: at least 1 ms.
  static void Begin(Oid outbox, std::chrono::milliseconds time);
  // The step needs more time for once, from now on. It is cancelled when the worker has to leave.
  static void Extend(std::chrono::milliseconds time);
  // Ends the step, however it ended, and forgets a cancellation that has come too late.
  static void End();

  // Why the last step was cancelled, as an error message; empty if it was not.
  static std::string Cause();
  // The outbox of the step that the process is ending for; InvalidOid if there is none.
  static Oid EndingFor();
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_BASE_STEP_LIMIT_H_
