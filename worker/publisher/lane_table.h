// The row of a lane of a log outbox: who has it, and how far it is (postbox.lane).
//
// A lane has one owner at a time: the worker whose lock_token stands in its row and who lives. It
// keeps the lane until it ends, or has more than its share; another worker takes the lane over when
// the token no longer lives, or when the row was not written for postbox.lease_timeout. Every
// checkpoint writes under the condition that the token is still ours, so a worker that has lost its
// lane stores nothing.
//
// All functions run in a transaction of the caller's, with the rights of the worker itself.
#ifndef POSTBOX_WORKER_PUBLISHER_LANE_H_
#define POSTBOX_WORKER_PUBLISHER_LANE_H_

#include "extension/base/guard.h"
#include "extension/base/statement.h"
#include "worker/publisher/log/log_position_logic.h"

namespace postbox::publisher {

class Lane {
 public:
  Lane(std::string publication, int slice, std::string lock_token);

  // Takes the lane if it is free and returns its position. Not when somebody else has it, or just
  // looks at it.
  std::optional<LogPosition> TryAcquire();

  // Re-bases the outbox if its lanes are from another cluster. Then nothing of it may be read in
  // the same transaction: this transaction sees its own rows, which no snapshot shows.
  bool RebaseIfForeign(Oid outbox);

  // Gives the lane up for others to take.
  void Release();

  // Stores the position and renews the lease. False: the lane is no longer ours.
  bool Checkpoint(const LogPosition& position);

 private:
  const std::string publication_;
  const int slice_;
  const std::string lock_token_;
  Statement make_, foreign_, rebase_, read_, take_, release_, checkpoint_;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_LANE_H_
