// How far publishing lags behind what is emitted to an outbox: for work that gives way to it.
#ifndef POSTBOX_EXTENSION_REGISTRY_OUTBOX_LAG_H_
#define POSTBOX_EXTENSION_REGISTRY_OUTBOX_LAG_H_

#include "extension/base/guard.h"

namespace postbox {

struct OutboxLag {
  std::string publication;
  // The age of the oldest event that is ready to be published; nothing if there is none, or if it
  // cannot be told.
  std::optional<int64> microseconds;
  bool is_broken;  // it publishes nothing until its outbox is repaired
};

// Of the publication of the outbox that lags most; nothing if there is no publication. Reads the
// outbox as its owner. Costs the same for any backlog.
std::optional<OutboxLag> LagOf(Oid outbox);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_REGISTRY_OUTBOX_LAG_H_
