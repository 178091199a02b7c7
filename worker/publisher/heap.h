// What malloc keeps for later, beyond what is in use: the copies of events and of requests.
#ifndef POSTBOX_WORKER_PUBLISHER_HEAP_H_
#define POSTBOX_WORKER_PUBLISHER_HEAP_H_

#include <cstddef>

namespace postbox::publisher {

// Large pieces go back to the system when they are freed. Once, before any thread is started.
void SetUpHeap();

// Gives back what is free anywhere on the heap, which takes some milliseconds.
void GiveBackFreedHeap();

class HeapTrimmer {
 public:
  // Before memory is taken for more events. Small pieces that were freed lie between others that
  // are in use: when much memory is taken, these free pages go back to the system.
  void Trim();

 private:
  std::size_t after_last_ = 0;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_HEAP_H_
