// What an outbox consists of, as it is now, and what is wrong with it: one definition for
// repair_outbox, which puts back what is missing, and for register_outbox and adopt_outbox, which
// take tables that are there.
#ifndef POSTBOX_EXTENSION_REGISTRY_OUTBOX_PARTS_H_
#define POSTBOX_EXTENSION_REGISTRY_OUTBOX_PARTS_H_

#include "extension/shared/outbox_columns.h"
#include "extension/shared/table_shape.h"

namespace postbox {

struct OutboxParts {
  Oid relation;
  Oid owner;
  bool registered = false;
  bool is_log = false;
  bool adopted = false;
  std::string generation;    // of a log: the default of the column generation
  Oid counter = InvalidOid;  // InvalidOid: missing, here and below
  Oid parked = InvalidOid;   // of a log
  OutboxColumns columns;     // of an adopted table
};

// The statement that creates the trigger of an adopted table. `table` is quoted and qualified.
std::string WakeTriggerStatement(const std::string& table);

// The greatest seq that is known to have been given out; as the owner of the outbox, without its
// row security.
int64 GreatestSeq(const OutboxParts& parts);

// In what the tables that are there differ from what they have to be. Needs SPI, FixedSearchPath
// and the rights of the owner.
std::vector<Flaw> FindOutboxFlaws(const OutboxParts& parts);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_REGISTRY_OUTBOX_PARTS_H_
