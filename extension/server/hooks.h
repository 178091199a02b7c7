// What Postbox does when others change databases and extensions. Installed at preload.
//
// Statements that need a database without sessions: DROP DATABASE x, CREATE DATABASE ... TEMPLATE
// x, ALTER DATABASE x RENAME, ALTER DATABASE x SET TABLESPACE. Before the server looks for other
// sessions, the workers of x are asked to leave and waited for (10 s at most; then the statement
// goes on and the server itself says who is in the way). The database is held until the transaction
// ends, whichever way: no worker comes back before. Only who owns x gets that far, so nobody can
// stop the workers of a database that is not his.
//
// CREATE, ALTER and DROP EXTENSION postbox, by whatever statement (DROP SCHEMA ... CASCADE, DROP
// OWNED, CREATE EXTENSION ... CASCADE): at commit the database's workers and the launcher are told.
// DROP EXTENSION waits for nobody: workers hold no lock while they wait, and leave when they find
// their extension gone.
//
// ALTER DATABASE x SET postbox.anything: workers of x are restarted at commit, since a session
// reads its database's settings only when it starts.
//
// COMMIT PREPARED: raises what a transaction can raise (extension/server/wakeup.h), except for news of
// extensions: those would make the launcher probe a database without the extension at each of them.
//
// All other statements pay one switch.
#ifndef POSTBOX_EXTENSION_SERVER_HOOKS_H_
#define POSTBOX_EXTENSION_SERVER_HOOKS_H_

namespace postbox {

// From _PG_init at preload only.
void InstallHooks();

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_SERVER_HOOKS_H_
