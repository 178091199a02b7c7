// Events that logical replication brings are published where they were emitted (replicated.cc). One
// that outbox_emit stores in the session that replays them, for a trigger of a table, is emitted
// here.
#ifndef POSTBOX_EXTENSION_EMIT_REPLICATED_H_
#define POSTBOX_EXTENSION_EMIT_REPLICATED_H_

namespace postbox {

// For as long as it exists, rows that come into outboxes are emitted by this session.
class EmittedHere {
 public:
  EmittedHere();
  ~EmittedHere();
  EmittedHere(const EmittedHere&) = delete;
  EmittedHere& operator=(const EmittedHere&) = delete;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_EMIT_REPLICATED_H_
