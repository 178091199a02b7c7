// Names of resources in the tests of the emulator.
#ifndef POSTBOX_WORKER_EMULATOR_BROKER_TEST_NAMES_H_
#define POSTBOX_WORKER_EMULATOR_BROKER_TEST_NAMES_H_

namespace postbox::emulator {

inline constexpr char kTopic[] = "projects/p/topics/topic";
inline constexpr char kOrders[] = "projects/p/topics/orders";
inline constexpr char kSub[] = "projects/p/subscriptions/sub";

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_BROKER_TEST_NAMES_H_
