// What every outbox has, however it was made: a version counter and a row of postbox.outbox. Used
// by create_outbox, adopt_outbox, register_outbox and repair_outbox.
#ifndef POSTBOX_EXTENSION_REGISTRY_OUTBOX_REGISTRATION_H_
#define POSTBOX_EXTENSION_REGISTRY_OUTBOX_REGISTRATION_H_

#include "extension/base/new_relation.h"
#include "extension/shared/table_shape.h"

namespace postbox {

// Throws invalid_parameter_value unless the interval is NULL or positive.
void CheckRetention(const NullableDatum& retention);

// The table that counts the versions of each aggregate.
TableShape CounterShape();

// Creates <name>_version, the table that counts the versions of each aggregate, as the current
// user. Needs SPI and FixedSearchPath.
void CreateVersionCounter(const NewRelation& relation);

struct OutboxRegistration {
  Oid relation;
  Oid counter;
  Oid parked = InvalidOid;  // of a log
  std::string kind;         // log or table
  NullableDatum retention;  // interval; NULL keeps published events for ever
  bool adopted = false;
  std::string columns = "{}";        // JSON: standard name -> name in the table, where they differ
  std::string generation_span = "";  // of a log; empty: by the retention
  int64 version_floor = 0;           // of aggregates that the counter lacks
};

// Writes the row of postbox.outbox, acting as its owner. The tables exist already. Needs SPI and
// FixedSearchPath.
void RegisterOutbox(const OutboxRegistration& registration);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_REGISTRY_OUTBOX_REGISTRATION_H_
