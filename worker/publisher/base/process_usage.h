// What the system says of this process. A signal handler may ask.
#ifndef POSTBOX_WORKER_PUBLISHER_BASE_PROCESS_USAGE_H_
#define POSTBOX_WORKER_PUBLISHER_BASE_PROCESS_USAGE_H_

#include <chrono>
#include <cstddef>

namespace postbox::publisher {

// The private memory of this process, in bytes, without shared_buffers and the pages of files; 0 if
// the system does not say.
std::size_t PrivateMemory();

// How long the main thread was ready to run since it began, and others had the processor; always 0
// if the system does not say.
std::chrono::milliseconds ProcessorWait();

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_BASE_PROCESS_USAGE_H_
