// The DDL of an outbox of kind `table`. Needs SPI and FixedSearchPath; runs as the current user.
//
// The state of a row follows from its columns:
//
//   PENDING    published_at, lock_token and next_retry_at are NULL
//   INFLIGHT   lock_token is set: a worker has claimed the row
//   PUBLISHED  published_at is set
//   RETRY      publish_attempts > 0, next_retry_at is finite
//   FAILED     publish_attempts > 0, next_retry_at = infinity: stays until redrive or discard
//   BEHIND     publish_attempts = 0, next_retry_at = infinity: waits behind a parked event of its
//              key
//   DISCARDED  published_at = -infinity
//
// Each partial index answers one question of the worker: which row comes next (_claim), which is
// due again (_retry), which is the first of its key (_key), which may be purged (_published). A
// lease changes no column that an index has, so it is a HOT update: the new version of the row lies
// in the same page, and no index learns of it. Leased rows stay in _claim or _retry.
#ifndef POSTBOX_EXTENSION_REGISTRY_TABLE_RELATIONS_H_
#define POSTBOX_EXTENSION_REGISTRY_TABLE_RELATIONS_H_

#include "extension/base/new_relation.h"
#include "extension/shared/table_shape.h"

namespace postbox {

// By its comment a table that create_outbox has made is told from one that was adopted.
inline constexpr char kTableComment[] = "Events to publish (postbox outbox)";

// The table as create_outbox makes it, and what of it an adopted table has, too: the columns with
// the state of a row, and the worker's indexes. `key` is the SQL expression of the aggregate id.
TableShape TableOutboxShape();
std::vector<ColumnShape> StateColumnShapes();
std::vector<IndexShape> TableIndexShapes(const std::string& key);

// Creates the table with its indexes. Its version counter comes from CreateVersionCounter.
void CreateTable(const NewRelation& relation);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_REGISTRY_TABLE_RELATIONS_H_
