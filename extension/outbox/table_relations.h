// What a table outbox is made of beside its table, for create_outbox and adopt_outbox.
#ifndef POSTBOX_EXTENSION_OUTBOX_TABLE_RELATIONS_H_
#define POSTBOX_EXTENSION_OUTBOX_TABLE_RELATIONS_H_

#include "extension/base/new_relation.h"

namespace postbox {

// Throws unless it is NULL or positive.
void CheckRetention(const NullableDatum& retention);

// The indexes of the worker, by suffix of their names. `key` is the expression of the aggregate id.
inline constexpr std::array<const char*, 5> kTableIndexSuffixes = {"_claim", "_retry", "_key",
                                                                   "_lease", "_published"};
void CreateTableIndexes(const NewRelation& relation, const std::string& key);

// <name>_version, the table that counts the versions of each aggregate.
void CreateVersionCounter(const NewRelation& relation);

struct OutboxRegistration {
  std::string kind;
  NullableDatum retention;
  bool adopted = false;
  std::string columns = "{}";  // JSON
};

// Writes the row of postbox.outbox, as its owner, and returns the OID of the outbox. Whatever
// belongs to it has been created.
Oid RegisterOutbox(const NewRelation& relation, const OutboxRegistration& registration);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_OUTBOX_TABLE_RELATIONS_H_
