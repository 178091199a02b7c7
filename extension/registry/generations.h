// Tables that are partitioned by LIST (generation): a log outbox, an inbox and its tombstones. What
// makes and empties their partitions is in sql/install/functions/34_generations.sql.
#ifndef POSTBOX_EXTENSION_REGISTRY_GENERATIONS_H_
#define POSTBOX_EXTENSION_REGISTRY_GENERATIONS_H_

#include "extension/shared/table_shape.h"

namespace postbox {

// The partitions of generations 0 to `count` - 1; InvalidOid for one that is missing.
std::vector<Oid> GenerationPartitions(Oid relation, int count);

// The statement that creates those that are missing, as the owner. `table` is quoted and qualified.
std::string AddPartitionsStatement(const std::string& table, int count);

// A flaw if some are missing: `loss` says what that does, and `repair` puts them back. One for each
// that is not an ordinary table, which is not repaired.
std::vector<Flaw> FindMissingPartitions(Oid relation, int count, const std::string& loss,
                                        const std::string& repair);

// Nothing, or why a partition of `relation` cannot be one of its generations: it is not ordinary
// and logged, or has another owner. Needs SPI.
std::string WhyUnfitPartition(Oid relation);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_REGISTRY_GENERATIONS_H_
