// Whether a table is registered as an inbox, and may be changed.
#ifndef POSTBOX_EXTENSION_REGISTRY_INBOX_REGISTRATION_H_
#define POSTBOX_EXTENSION_REGISTRY_INBOX_REGISTRATION_H_

#include "extension/base/guard.h"
#include "extension/base/new_relation.h"

namespace postbox {

// Throws that `relation` is no inbox, or does not exist.
[[noreturn]] void ThrowNoInbox(Oid relation);

// An error unless the current user owns the inbox. Needs SPI and FixedSearchPath.
void RequireInboxOwner(Oid relation);

// Creates the tables of an inbox, as the current user, and registers it. Returns its table.
Oid CreateInbox(const NewRelation& relation, Datum retention);
// Drops the tables and the registration, for the owner.
void DropInbox(Oid relation);

// What belongs to an inbox and has a name, in the table `kind` of postbox: a subscription, a
// projection or a handler. Both throw undefined_object if there is none of that name.
//
// Its inbox. Needs SPI and FixedSearchPath.
Oid InboxOf(const char* kind, const std::string& name);
// Deletes its row, for the owner of the inbox.
void DropNamed(const char* kind, const std::string& name);

// Keys of the inbox may be parked from now on, or no longer (extension/apply/parked_keys.h). Waits
// for the sessions that apply events to it, and those that come wait for this transaction. Takes a
// lock of the table, so it comes before LockRegistration. The caller owns the inbox.
void SetParksKeys(Oid relation, bool parks);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_REGISTRY_INBOX_REGISTRATION_H_
