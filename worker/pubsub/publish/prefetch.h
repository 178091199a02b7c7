// Prefetching: asks the processor to load memory into its caches before it is used.
//
// Plain header: standard library only. A message waits between the steps of its way: in the queue
// of its key, for its answer, for the other thread. Thousands of others pass meanwhile, and push it
// out of the caches. The loops that come back to messages therefore fetch those that are a few
// places ahead. A prefetch is only a hint: it never fails, whatever the address, and never changes
// a result.
//
// This header is the only place that knows of cache lines, but for the order of the members of
// OutgoingMessage and ClaimedEvent.
// What they gain is measured by `bench/run publish`, case "each its own key", which has the most
// queues and the smallest requests, and by `bench/run drain` for events that are used again. Change
// the distances below only together with these figures.
#ifndef POSTBOX_WORKER_PUBSUB_PUBLISH_PREFETCH_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISH_PREFETCH_H_

#include <cstddef>
#include <string>
#include <vector>

namespace postbox::pubsub {

inline constexpr std::size_t kCacheLine = 64;  // bytes, on x86-64 and on most ARM64 processors

// How many places ahead a loop fetches. In the first case the loop uses one line of each message.
// In the second it uses whole messages that another thread has just written.
inline constexpr std::size_t kFetchAhead = 4;
inline constexpr std::size_t kFetchFarAhead = 8;

// The cache line at `address`.
inline void PrefetchForRead(const void* address) { __builtin_prefetch(address, 0); }
inline void PrefetchForWrite(const void* address) { __builtin_prefetch(address, 1); }

// All cache lines of `*object`. Its members' own memory, such as that of a string, is not fetched.
template <class T>
void PrefetchObject(const T* object) {
  const auto* const begin = reinterpret_cast<const char*>(object);
  for (std::size_t at = 0; at < sizeof(T); at += kCacheLine) PrefetchForRead(begin + at);
}
template <class T>
void PrefetchObjectForWrite(const T* object) {
  const auto* const begin = reinterpret_cast<const char*>(object);
  for (std::size_t at = 0; at < sizeof(T); at += kCacheLine) PrefetchForWrite(begin + at);
}

// The first cache line of the characters of `text`.
inline void PrefetchText(const std::string& text) { PrefetchForRead(text.data()); }
inline void PrefetchTextForWrite(const std::string& text) { PrefetchForWrite(text.data()); }

// For a loop over pointers that is at position `at`: the first cache line of the object, or the
// whole object, that is `distance` places ahead. Nothing near the end of the vector.
template <class T>
void PrefetchAhead(const std::vector<T*>& objects, std::size_t at, std::size_t distance) {
  if (at + distance < objects.size()) PrefetchForRead(objects[at + distance]);
}
template <class T>
void PrefetchObjectAhead(const std::vector<T*>& objects, std::size_t at, std::size_t distance) {
  if (at + distance < objects.size()) PrefetchObject(objects[at + distance]);
}

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISH_PREFETCH_H_
