// Errors of a statement that say nothing about the outbox: a lock was in the way for a moment.
// The transaction is rolled back and done again soon, and the publication is not suspended unless
// that lasts.
//
//   55P03   a lock could not be had in time
//   40P01   a deadlock, often with a session that alters the table
//   40001   a serialization failure, in code of the outbox's owner
//   57014   a session has cancelled the statement (pg_cancel_backend). Of one that the worker has
//           cancelled itself, since it took too long, the error is Transaction's own.
#ifndef POSTBOX_WORKER_PUBLISHER_BASE_PASSING_ERROR_H_
#define POSTBOX_WORKER_PUBLISHER_BASE_PASSING_ERROR_H_

#include "extension/base/guard.h"

namespace postbox::publisher {

inline bool IsPassing(const PostgresError& error) {
  switch (error.sqlstate) {
    case ERRCODE_LOCK_NOT_AVAILABLE:
    case ERRCODE_T_R_DEADLOCK_DETECTED:
    case ERRCODE_T_R_SERIALIZATION_FAILURE:
      return true;
    case ERRCODE_QUERY_CANCELED:
      return error.raised_by_postgres;
    default:
      return false;
  }
}

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_BASE_PASSING_ERROR_H_
