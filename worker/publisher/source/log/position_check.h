// Whether the position of a lane fits the log. The sequence may have been set back, or the log
// emptied.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_POSITION_CHECK_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_POSITION_CHECK_H_

#include "worker/publisher/source/log/log_reader.h"
#include "worker/publisher/source/log/log_tables.h"

namespace postbox::publisher {

enum class PositionFit : std::uint8_t {
  kFits,
  // The log is empty, and its sequence is where it was before the position. Nothing is read and the
  // position stays, since what was in the log may come back with the same seqs, and of a backlog
  // that is not there now nothing is known to be over.
  kEmptied,
  // The log was emptied and its sequence began again: nothing that is in it was read.
  kBeginsAgain,
};

// Under the snapshot of the moment. Throws object_not_in_prerequisite_state if the sequence was set
// back: new events would get a seq up to which everything counts as read.
PositionFit CheckPosition(const LanePosition& position, const LogMoment& moment, LogReader& reader,
                          const LogTables& tables);

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_POSITION_CHECK_H_
