// What the catalogs say about a registered outbox: its tables, its owner and its kind.
//
// What emits asks for it all the time, and keeps it with its statements (outbox_cache.h). What
// changes an outbox or its publications reads it.
#ifndef POSTBOX_EXTENSION_REGISTRY_OUTBOX_FACTS_H_
#define POSTBOX_EXTENSION_REGISTRY_OUTBOX_FACTS_H_

#include "extension/shared/outbox_columns.h"

namespace postbox {

// If two reads are equal, the prepared statements are still right.
struct OutboxFacts {
  Oid relation;
  Oid owner;
  Oid counter;
  Oid sequence;
  Oid given_versions;  // postbox.given_version
  Oid stamp;           // postbox.stamp_event
  bool is_log;
  bool adopted;
  std::string name;          // quoted and qualified
  std::string counter_name;  // quoted and qualified
  std::string parked_name;   // quoted and qualified; empty unless it is a log
  std::string primary_key;   // the name of the unique index on the id
  int64 generation_span;     // seconds; 0 unless it is a log
  int64 version_floor;       // the versions of an aggregate that the counter lacks are above it
  OutboxColumns columns;     // of an adopted table; else the standard ones

  bool operator==(const OutboxFacts&) const = default;
};

// The outbox whose table that is. Throws undefined_table if the table is gone, wrong_object_type if
// it is no outbox, object_not_in_prerequisite_state if a part of it is missing or of another owner.
// Needs SPI and FixedSearchPath.
OutboxFacts ReadOutboxFacts(Oid relation);

// The same, for changing the outbox: throws insufficient_privilege unless the current user owns it.
OutboxFacts ReadOwnedOutbox(Oid relation);

// The outbox of a publication. Throws undefined_object if there is no such publication. Needs SPI.
Oid OutboxOfPublication(const std::string& name);

// Whether the owner of the outbox has the rights that counting versions needs. Inside Pg().
bool OwnerMayCount(const OutboxFacts& facts);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_REGISTRY_OUTBOX_FACTS_H_
