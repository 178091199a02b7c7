// What Postbox does when a session changes databases or extensions. Installed at preload.
//
// Holds. DROP DATABASE x, CREATE DATABASE ... TEMPLATE x, ALTER DATABASE x RENAME and ALTER
// DATABASE x SET TABLESPACE need a database without sessions, and a publisher worker is a session.
// Rule: the statement first makes sure that no worker can come, then sends away those that are
// there, then waits for them.
//
//  1. It writes a hold (database, own pid) into shared memory, under the lock.
//  2. It sends SIGTERM to the workers that are attached to x.
//  3. It waits until none is attached, 10 s at most, and then goes on in any case: if a session is
//     left, the server itself reports it.
//  4. At the end of the transaction, commit or abort, it removes its holds and wakes the launcher,
//     which starts the workers again if the database still exists.
//
// The races:
//  - A worker starts between 1 and 2. Attaching takes the same lock: either it attached before the
//    hold was written, and step 2 sees its pid, or it finds the hold and leaves.
//  - A worker that was asked to start before 1 comes up after 3. It finds the hold and leaves
//    before it connects to the database.
//  - A worker is still connected when step 3 ends. A worker clears its pid only after it has left
//    the proc array, so a database without attached workers has none in it.
//  - The session ends without COMMIT or ROLLBACK: its transaction is aborted, which removes the
//    hold. If the process is killed, the server starts again with new shared memory.
// Nothing of this is on disk. Only the owner of x gets as far as step 1, so no other user can stop
// the workers of a database. There is room for 64 holds; without room the statement goes on without
// one, and the server's own check remains.
//
// CREATE, ALTER and DROP EXTENSION postbox, by whichever statement (also DROP SCHEMA ... CASCADE,
// DROP OWNED, CREATE EXTENSION ... CASCADE): at commit the workers of the database and the launcher
// are told. What was counted in a database goes with its extension. DROP EXTENSION waits for no
// worker: workers hold no lock while they sleep, and leave when they find that their extension does
// not exist.
//
// ALTER DATABASE x SET postbox.anything: the workers of x are restarted at commit, since a session
// reads the settings of its database only when it starts.
//
// COMMIT PREPARED cannot know what the transaction did (wakeup.h).
//  - Events: the workers of the database and the sessions that wait are woken in any case.
//  - Configuration: the trigger configuration_changed has made an invalidation message about its
//    table, and the server keeps it with the prepared transaction. COMMIT PREPARED sends it, to
//    this session too. So this session looks for it right after the statement, and only then says
//    that the configuration changed. A message of another transaction that comes at the same moment
//    is taken for it, and workers read their configuration once too often.
//  - The extension: no message, the poll of the launcher finds it.
//
// All other statements cost one switch.
#ifndef POSTBOX_EXTENSION_LIFECYCLE_HOOKS_H_
#define POSTBOX_EXTENSION_LIFECYCLE_HOOKS_H_

namespace postbox {

// From _PG_init at preload only.
void InstallHooks();

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_LIFECYCLE_HOOKS_H_
