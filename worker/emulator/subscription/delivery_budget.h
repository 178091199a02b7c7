// How much more one delivery may lease. A message that exceeds the limits is delivered alone:
// otherwise it would never be.
#ifndef POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_DELIVERY_BUDGET_H_
#define POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_DELIVERY_BUDGET_H_

#include <cstddef>
#include <cstdint>
#include <limits>

#include "worker/emulator/rules/service_limits.h"

namespace postbox::emulator {

struct DeliveryBudget {
  int64_t messages = kMaxPullMessages;
  int64_t flow_bytes = std::numeric_limits<int64_t>::max();
  int64_t response_bytes = static_cast<int64_t>(kMaxResponseBytes);
  bool stream_empty = true;    // the stream holds no message
  bool response_empty = true;  // no message was taken yet

  bool Admits(size_t bytes) const {
    const auto size = static_cast<int64_t>(bytes);
    return messages > 0 && (flow_bytes >= size || stream_empty) &&
           (response_bytes >= size || response_empty);
  }
  void Spend(size_t bytes) {
    --messages;
    flow_bytes -= static_cast<int64_t>(bytes);
    response_bytes -= static_cast<int64_t>(bytes);
    stream_empty = false;
    response_empty = false;
  }
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_DELIVERY_BUDGET_H_
