// The clock of the emulator. Tests replace it.
#ifndef POSTBOX_WORKER_EMULATOR_BROKER_CLOCK_H_
#define POSTBOX_WORKER_EMULATOR_BROKER_CLOCK_H_

#include <functional>

#include "absl/time/time.h"

namespace postbox::emulator {

using Clock = std::function<absl::Time()>;

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_BROKER_CLOCK_H_
