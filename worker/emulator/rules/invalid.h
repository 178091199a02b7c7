// How the emulator says that something is not valid: a schema, or another argument.
#ifndef POSTBOX_WORKER_EMULATOR_RULES_INVALID_H_
#define POSTBOX_WORKER_EMULATOR_RULES_INVALID_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace postbox::emulator {

// A message says where a value or a difference is, unless it is longer than this already.
inline constexpr std::size_t kLongMessage = 200;

template <class... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_RULES_INVALID_H_
