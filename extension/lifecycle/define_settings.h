// Every setting (GUC) of Postbox: names, ranges, defaults and descriptions are in the tables of
// define_settings.cc and nowhere else.
//
// postbox.default_outbox decides where an event goes, and whose triggers run as the role that
// emits. So it remembers who has set it. A function that runs as another role than its caller, for
// example a SECURITY DEFINER function, does not follow its caller here.
//
// postbox.mute_changes is for one transaction, so it remembers in which one it was set. It also
// remembers by whom: what a function sets does not mute the statements of its caller.
#ifndef POSTBOX_EXTENSION_LIFECYCLE_DEFINE_SETTINGS_H_
#define POSTBOX_EXTENSION_LIFECYCLE_DEFINE_SETTINGS_H_

#include "extension/base/postgres.h"

namespace postbox {

// Defines all settings and reserves the prefix. For _PG_init, once in a process.
void DefineSettings();

// Whether the value of postbox.default_outbox counts for the current user. It does not if the
// current user is a function's, and the value was set by another role: in the session, by its
// connection, or with ALTER ROLE. It does if the function itself has set it (also by its SET
// clause), and if it is that of the database, of all roles, or of the server.
bool DefaultOutboxCounts();

// How the present value of postbox.mute_changes was set.
struct MuteOrigin {
  Oid role;
  bool by_function;  // that ran as another role than its caller
  LocalTransactionId transaction;
};
const MuteOrigin& OriginOfMute();

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_LIFECYCLE_DEFINE_SETTINGS_H_
