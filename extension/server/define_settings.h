// Every setting (GUC) of Postbox: names, ranges, defaults and descriptions are in the tables of
// define_settings.cc and nowhere else.
//
// postbox.default_outbox decides where an event goes, and whose triggers run as the role that
// emits. So it remembers who has set it. A function that runs as another role than its caller, for
// example a SECURITY DEFINER function, does not follow its caller here.
#ifndef POSTBOX_EXTENSION_SERVER_DEFINE_SETTINGS_H_
#define POSTBOX_EXTENSION_SERVER_DEFINE_SETTINGS_H_

namespace postbox {

// Defines all settings and reserves the prefix. For _PG_init, once in a process.
void DefineSettings();

// Whether the value of postbox.default_outbox counts for the current user. It does not if the
// current user is a function's, and the value was set by another role: in the session, by its
// connection, or with ALTER ROLE. It does if the function itself has set it (also by its SET
// clause), and if it is that of the database, of all roles, or of the server.
bool DefaultOutboxCounts();

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_SERVER_DEFINE_SETTINGS_H_
