// The relations of a log outbox: the log, its sequence and its table of parked events, as they are
// called now.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_LOG_TABLES_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_LOG_TABLES_H_

#include "worker/publisher/store/publication.h"

namespace postbox::publisher {

class LogTables {
 public:
  // It must outlive the object.
  explicit LogTables(const Publication& publication) : publication_(publication) {}

  // Checks that they are there and that no row security hides rows from the worker, and looks up
  // their names. Returns their owner. Throws undefined_table, insufficient_privilege.
  Oid Open();
  // All of them: statements with other ones are made again.
  std::string Names() const;
  const std::string& log() const { return log_; }
  const std::string& parked() const { return parked_; }
  Oid sequence() const { return sequence_; }
  const std::string& sequence_name() const { return sequence_name_; }

 private:
  const Publication& publication_;
  Oid sequence_ = InvalidOid;
  std::string log_, parked_, sequence_name_;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_LOG_TABLES_H_
