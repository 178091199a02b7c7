// How much memory this process has of its own, without shared_buffers and the pages of files.
#ifndef POSTBOX_WORKER_PUBLISHER_BASE_PRIVATE_MEMORY_H_
#define POSTBOX_WORKER_PUBLISHER_BASE_PRIVATE_MEMORY_H_

#include <cstddef>

namespace postbox::publisher {

// In bytes, as of now; 0 if the system does not say. A signal handler may call it.
std::size_t PrivateMemory();

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_BASE_PRIVATE_MEMORY_H_
