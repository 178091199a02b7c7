#include "worker/publisher/source/log/log_tables.h"

#include "extension/base/relation.h"
#include "worker/publisher/source/row_security.h"

namespace postbox::publisher {

Oid LogTables::Open() {
  const Oid owner = LockOwned(publication_.outbox, AccessShareLock);
  parked_ = RelationName(publication_.parked);
  sequence_name_ = RelationName(sequence_);
  if (sequence_name_.empty()) {
    sequence_ = LogSequence(publication_.outbox);
    sequence_name_ = RelationName(sequence_);
  }
  if (!OidIsValid(owner) || parked_.empty() || sequence_name_.empty()) {
    Throw(ERRCODE_UNDEFINED_TABLE,
          "the outbox of publication \"" + publication_.name + "\" is incomplete",
          "Its log, its sequence or its table of parked events does not exist.",
          sequence_name_.empty() ? "Make its sequence OWNED BY its column seq again."
                                 : "Drop it with postbox.drop_outbox.");
  }
  log_ = RelationName(publication_.outbox);
  RefuseRowSecurity(publication_.outbox, owner);
  RefuseRowSecurity(publication_.parked, owner);
  return owner;
}

std::string LogTables::Names() const { return log_ + parked_ + sequence_name_; }

}  // namespace postbox::publisher
