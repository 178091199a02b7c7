// Memory for what one event needs, and is freed when it is done.
#ifndef POSTBOX_EXTENSION_APPLY_SCRATCH_MEMORY_H_
#define POSTBOX_EXTENSION_APPLY_SCRATCH_MEMORY_H_

#include "extension/base/guard.h"

namespace postbox {

// Allocations go into a separate context, which is emptied at the end.
class ScratchMemory {
 public:
  explicit ScratchMemory(MemoryContext context) : context_(context) {
    outer_ = MemoryContextSwitchTo(context_);
  }
  ~ScratchMemory() {
    MemoryContextSwitchTo(outer_);
    MemoryContextReset(context_);
  }
  ScratchMemory(const ScratchMemory&) = delete;
  ScratchMemory& operator=(const ScratchMemory&) = delete;

 private:
  MemoryContext context_;
  MemoryContext outer_;
};

inline MemoryContext MakeScratch() {
  return Pg([] {
    return AllocSetContextCreate(CurrentMemoryContext, "postbox event", ALLOCSET_DEFAULT_SIZES);
  });
}

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_SCRATCH_MEMORY_H_
