// See table_outbox_statements.h.
#include "worker/publisher/table/table_outbox_statements.h"

namespace postbox::publisher {

TableOutbox::Statements::Statements(const Publication& publication, const TableOutboxSql& sql) {
  constexpr Oid kTids = TIDARRAYOID;
  waiting = FilteredStatement(publication, sql.waiting,
                              {INT8ARRAYOID, INT8ARRAYOID, INT4OID, TEXTARRAYOID, TEXTOID});
  next_waiting = Statement(sql.next_waiting, {INT8ARRAYOID, INT8ARRAYOID, TEXTOID});
  due = FilteredStatement(publication, sql.due, {INT4OID});
  followers = FilteredStatement(publication, sql.followers, {TEXTARRAYOID, INT8ARRAYOID, INT4OID});
  free_behind = FilteredStatement(publication, sql.free_behind, {INT4OID});
  lock = Statement(sql.lock, {kTids});
  lock_behind = Statement(sql.lock_behind, {kTids});
  heads = FilteredStatement(publication, sql.heads, {TEXTARRAYOID});
  hold_parked = Statement(sql.hold_parked, {kTids});
  park_behind = Statement(sql.park_behind, {kTids});
  lease = Statement(sql.lease, {kTids, TEXTOID});
  confirm_at = Statement(sql.confirm_at, {TEXTARRAYOID, TEXTOID, kTids});
  confirm = Statement(sql.confirm, {TEXTARRAYOID, TEXTOID});
  release = Statement(sql.release, {TEXTARRAYOID, TEXTOID});
  release_behind = Statement(sql.release_behind, {TEXTARRAYOID, TEXTOID});
  park = Statement(sql.park, {TEXTOID, TEXTOID, TEXTOID, FLOAT8OID, INT4OID});
  park_seq = Statement(sql.park_seq, {INT8OID, TEXTOID, TEXTOID, FLOAT8OID, INT4OID});
  park_unreadable = Statement(sql.park_unreadable, {kTids, TEXTOID, INT4OID, FLOAT8OID, FLOAT8OID});
  make_due = Statement(sql.make_due, {kTids});
  leases =
      Statement(sql.leases, {INT8ARRAYOID, INT8ARRAYOID, FLOAT8OID, INT4OID, kTids, TEXTARRAYOID});
  take_over = Statement(sql.take_over, {kTids, TEXTARRAYOID, FLOAT8OID, BOOLOID});
  any_behind = Statement(sql.any_behind, {});
  keys = FilteredStatement(publication, sql.keys, {TEXTOID, INT4OID});
}

}  // namespace postbox::publisher
