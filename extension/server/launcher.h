// The launcher: one background worker that keeps postbox.publishers publisher workers running in
// every database that has the extension. It publishes nothing and is connected to no database.
//
// What it knows of a database:
//
//   unknown --probe found it--> present          (all workers run)
//      |  ^---CREATE EXTENSION committed---+
//      +------probe found nothing-----> absent   (no worker runs)
//                                          ^
//   present ---worker found it gone--------+
//
// A probe is the database's first worker: it looks for the extension, and either stays or reports
// that there is none and leaves. Only a few databases are probed at once, so that a server with
// hundreds of them does not use up its background worker slots at start. What the launcher knows
// dies with it; a new launcher probes again.
//
// A report "no extension" counts only if no CREATE EXTENSION committed since the worker looked
// (SharedState::extension_epoch), otherwise the database is probed again.
//
// Scenarios, each with a test of that name in tests/tap: CREATE EXTENSION while running; DROP
// EXTENSION while running; DROP DATABASE is not blocked; CREATE DATABASE ... TEMPLATE is not
// blocked; worker killed (-9) and cluster recovers; worker ERROR restarts with backoff; SIGHUP
// changes settings; smart/fast/immediate shutdown; standby does not publish, promotion does;
// postmaster death; extension present but library not preloaded.
//
// How each comes out right:
//  - The workers are dynamic background workers that the postmaster never restarts by itself. The
//    launcher starts them again: at once when they were stopped for a held database, after
//    postbox.restart_delay otherwise, doubled with each failure up to 60 s; a minute of good work
//    makes the next failure the first one again.
//  - When a worker crashes, the postmaster ends everybody and makes new shared memory; the launcher
//    is started again like any background worker and begins from nothing.
//  - When the launcher itself fails, its workers go on. The next launcher stops those it finds,
//    since it has no handle for them, and starts its own.
//  - A standby starts no launcher before recovery has ended (BgWorkerStart_RecoveryFinished).
#ifndef POSTBOX_EXTENSION_SERVER_LAUNCHER_H_
#define POSTBOX_EXTENSION_SERVER_LAUNCHER_H_

namespace postbox {

// Asks the postmaster to start the launcher. From _PG_init at preload only.
void RegisterLauncher();

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_SERVER_LAUNCHER_H_
