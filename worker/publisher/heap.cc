// See heap.h.
#include "worker/publisher/heap.h"

#include <malloc.h>

#include <algorithm>

#include "worker/publisher/base/process_usage.h"

namespace postbox::publisher {
namespace {

#ifdef __GLIBC__

// What is this large has its own mapping. Left to itself malloc raises the limit with each
// that is freed, and then keeps them.
constexpr int kLarge = 4 << 20;
// So much is kept at the end of a heap.
constexpr int kKept = 2 << 20;

// The worker's thread and the one that sends requests have a heap each. Threads of gRPC that come
// and go share them: each further heap keeps its own free pieces.
constexpr int kHeaps = 2;

// A look at all free pieces takes some milliseconds. It is not worth it below this in all, nor
// below an eighth more than after the last time.
constexpr std::size_t kMuch = std::size_t{32} << 20;
constexpr std::size_t kMorePart = 8;

#endif

}  // namespace

#ifdef __GLIBC__

void SetUpHeap() {
  mallopt(M_MMAP_THRESHOLD, kLarge);
  mallopt(M_TRIM_THRESHOLD, kKept);
  mallopt(M_ARENA_MAX, kHeaps);
}

void GiveBackFreedHeap() { malloc_trim(0); }

void HeapTrimmer::Trim() {
  const std::size_t now = PrivateMemory();
  after_last_ = std::min(after_last_, now);
  if (now < std::max(kMuch, after_last_ + after_last_ / kMorePart)) return;
  malloc_trim(0);
  after_last_ = PrivateMemory();
}

#else

void SetUpHeap() {}
void GiveBackFreedHeap() {}
void HeapTrimmer::Trim() {}

#endif

}  // namespace postbox::publisher
