// The statements of a table outbox, prepared: see table_outbox_sql.h for what each one does.
#ifndef POSTBOX_WORKER_PUBLISHER_TABLE_TABLE_OUTBOX_STATEMENTS_H_
#define POSTBOX_WORKER_PUBLISHER_TABLE_TABLE_OUTBOX_STATEMENTS_H_

#include "worker/publisher/table/table_outbox.h"
#include "worker/publisher/table/table_outbox_sql.h"

namespace postbox::publisher {

struct TableOutbox::Statements {
  // `publication` lives as long.
  Statements(const Publication& publication, const TableOutboxSql& sql);

  FilteredStatement waiting, due, followers, free_behind, heads, keys;
  Statement next_waiting, lock, lock_behind, hold_parked, park_behind, lease;
  Statement confirm, release, release_behind, park, park_seq, park_unreadable, make_due;
  Statement leases, take_over, any_behind, confirm_at;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_TABLE_TABLE_OUTBOX_STATEMENTS_H_
