// A memory context that lasts as long as the object: for what a session keeps.
#ifndef POSTBOX_EXTENSION_BASE_SESSION_MEMORY_H_
#define POSTBOX_EXTENSION_BASE_SESSION_MEMORY_H_

#include "extension/base/guard.h"

namespace postbox {

class SessionMemory {
 public:
  SessionMemory()
      : context_(postbox::Pg([] {
          return AllocSetContextCreate(TopMemoryContext, "postbox session memory",
                                       ALLOCSET_SMALL_SIZES);
        })) {}
  ~SessionMemory() { MemoryContextDelete(context_); }
  SessionMemory(const SessionMemory&) = delete;
  SessionMemory& operator=(const SessionMemory&) = delete;

  MemoryContext context() const { return context_; }

  // Pg(f), allocating there.
  template <class F>
  auto Pg(F&& f) const -> decltype(f()) {
    return postbox::Pg([&] {
      const MemoryContext before = MemoryContextSwitchTo(context_);
      auto result = f();
      MemoryContextSwitchTo(before);
      return result;
    });
  }

 private:
  MemoryContext context_;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_BASE_SESSION_MEMORY_H_
