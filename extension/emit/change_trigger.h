// What a trigger that calls emit_changes says, and what follows from it: read once in a session,
// and again when its table or its arguments have changed. A statement that changes one row would
// otherwise spend more on it than on the event.
#ifndef POSTBOX_EXTENSION_EMIT_CHANGE_TRIGGER_H_
#define POSTBOX_EXTENSION_EMIT_CHANGE_TRIGGER_H_

#include "extension/base/session_memory.h"
#include "extension/emit/emitted_event.h"
#include "extension/emit/row_format.h"

extern "C" {
#include <commands/trigger.h>
}

namespace postbox {

enum class ChangeKind { kCreated, kUpdated, kDeleted };

class ChangeTrigger {
 public:
  // Throws if the arguments are not as described in kArgumentsHint, or name a column that the table
  // has not.
  explicit ChangeTrigger(const TriggerData& trigger);

  // Whether it was made of these arguments.
  bool HasArguments(const Trigger& trigger) const;

  RowFormat& format() { return *format_; }
  // The outbox that the argument names, found again when a relation of that name may be another
  // one; InvalidOid if it names none. Throws if it is not there, or is named without its schema.
  Oid outbox();
  // Something has changed about a relation, or all of them if InvalidOid.
  void ForgetOutbox(Oid changed) {
    if (changed == InvalidOid || changed == outbox_) outbox_ = InvalidOid;
  }
  const Text& aggregate_type() const { return aggregate_type_; }
  const Text& schema_version() const { return schema_version_; }
  const Text& event_type(ChangeKind kind) const { return event_types_[static_cast<size_t>(kind)]; }

 private:
  static constexpr size_t kMaxArguments = 5;

  std::array<std::string, kMaxArguments> arguments_;
  Oid outbox_ = InvalidOid;  // until it is found
  Oid schema_of_outbox_ = InvalidOid;
  std::optional<RowFormat> format_;
  SessionMemory memory_;  // of the texts
  Text aggregate_type_;
  Text schema_version_;
  std::array<Text, 3> event_types_;
};

// That of a trigger which fires. It is not dropped while the pointer is kept.
std::shared_ptr<ChangeTrigger> FindChangeTrigger(const TriggerData& trigger);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_EMIT_CHANGE_TRIGGER_H_
