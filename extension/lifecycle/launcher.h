// The launcher: one background worker that keeps postbox.publishers publisher workers running in
// every database that has the extension. It publishes nothing and is connected to no database.
// README.md beside this file has its messages, its state changes, and the scenarios with the test
// of each.
//
// What it knows of a database:
//
//   unknown --probe found it--> present          (all workers run)
//      |  ^---CREATE EXTENSION committed---+
//      +------probe found nothing-----> absent   (no worker runs)
//                                          ^
//   present ---worker found it dropped-----+
//
// A probe is the database's first worker: it looks for the extension, and either stays or reports
// that there is none and leaves. Only a few databases are probed at once, so that a server with
// hundreds of them does not use up its background worker slots at start. All of this is in the
// memory of the launcher; a new launcher probes again.
//
// A report "no extension" counts only if no CREATE EXTENSION committed since the worker looked
// (SharedState::extension_epoch); otherwise the database is probed again.
//
// What makes it robust:
//  - The postmaster never restarts a publisher worker by itself (BGW_NEVER_RESTART); the launcher
//    does: at once when the worker was stopped for a held database, otherwise after
//    postbox.restart_delay, which doubles with each failure up to 60 s. After a minute of
//    work the next failure counts as the first again.
//  - When a worker crashes, the postmaster ends all processes and creates new shared memory. The
//    launcher is started again like any background worker and begins with nothing.
//  - When the launcher itself fails, its workers go on. The next launcher stops those that it
//    finds, since it has no handle for them, and starts its own.
//  - If there are fewer slots for workers than databases, these are served in turn: README.md,
//    "Turns".
//  - A standby starts no launcher before recovery has ended (BgWorkerStart_RecoveryFinished).
#ifndef POSTBOX_EXTENSION_LIFECYCLE_LAUNCHER_H_
#define POSTBOX_EXTENSION_LIFECYCLE_LAUNCHER_H_

namespace postbox {

// Asks the postmaster to start the launcher. From _PG_init at preload only.
void RegisterLauncher();

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_LIFECYCLE_LAUNCHER_H_
