#include "worker/cli/audit/ghosts.h"

namespace postbox::cli {

bool IsGhost(const Arrival& arrival, const RetainedFrom& retained) {
  if (arrival.received < retained.reader) return false;
  const int64_t emitted = TimeOf(arrival.id, 0);  // 0: the id does not say
  return emitted == 0 || emitted >= retained.source;
}

}  // namespace postbox::cli
