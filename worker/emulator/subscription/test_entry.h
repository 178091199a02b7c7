// Entries for the tests of this room.
#ifndef POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_TEST_ENTRY_H_
#define POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_TEST_ENTRY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "worker/emulator/subscription/entry.h"

namespace postbox::emulator {

inline std::shared_ptr<StoredMessage> MessageWith(uint64_t sequence, size_t bytes = 1) {
  auto message = std::make_shared<StoredMessage>();
  message->wire = std::string(bytes, 'x');
  message->sequence = sequence;
  return message;
}

inline Entry EntryWith(uint64_t sequence, size_t bytes = 1) {
  Entry entry;
  entry.message = MessageWith(sequence, bytes);
  return entry;
}

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_TEST_ENTRY_H_
