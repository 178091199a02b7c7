// What a stretch of work uses of what can be counted: instructions, calls of functions, buffers,
// WAL. These do not depend on what else the machine does. For `bench/run counts`.
#pragma once

#include <cstdint>

namespace postbox::bench {

struct Usage {
  int64_t buffers = 0;  // pages that were found in shared_buffers or read into them
  int64_t wal = 0;      // bytes
};

// Begins the stretch in this process. A server that runs under
// `valgrind --tool=callgrind --instr-atstart=no` counts instructions and calls from here on;
// anywhere else that costs some instructions that do nothing.
void BeginUsage();

// Ends it. The counts of callgrind are written when the process ends.
Usage EndUsage();

}  // namespace postbox::bench
