// What every outbox has, however it was made: a version counter and a row of postbox.outbox. Used
// by create_outbox and adopt_outbox.
#ifndef POSTBOX_EXTENSION_OUTBOX_OUTBOX_REGISTRATION_H_
#define POSTBOX_EXTENSION_OUTBOX_OUTBOX_REGISTRATION_H_

#include "extension/base/new_relation.h"

namespace postbox {

// Throws invalid_parameter_value unless the interval is NULL or positive.
void CheckRetention(const NullableDatum& retention);

// Creates <name>_version, the table that counts the versions of each aggregate, as the current
// user. Needs SPI and FixedSearchPath.
void CreateVersionCounter(const NewRelation& relation);

struct OutboxRegistration {
  std::string kind;         // log or table
  NullableDatum retention;  // interval; NULL keeps published events for ever
  bool adopted = false;
  bool has_generations = false;  // of a log, see log_relations.h
  std::string columns = "{}";    // JSON: standard name -> name of the column, where they differ
};

// Writes the row of postbox.outbox, acting as the owner of postbox.outbox, and returns the OID of
// the outbox. Its tables exist already. Needs SPI and FixedSearchPath.
Oid RegisterOutbox(const NewRelation& relation, const OutboxRegistration& registration);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_OUTBOX_OUTBOX_REGISTRATION_H_
