// What a broker is told when it is started.
#ifndef POSTBOX_WORKER_EMULATOR_BROKER_BROKER_OPTIONS_H_
#define POSTBOX_WORKER_EMULATOR_BROKER_BROKER_OPTIONS_H_

#include <string>

#include "worker/emulator/broker/publish_quotas.h"

namespace postbox::emulator {

struct BrokerOptions {
  // Every message is delivered once more after its first ack.
  bool deliver_twice = false;
  // A stream that ends gives its messages back at once. Otherwise they stay leased until their
  // deadlines.
  bool release_on_disconnect = false;
  // How much may be published in a second.
  PublishRates publish_rates = {};
  // Where topics, subscriptions, snapshots, schemas and messages are kept; empty: in memory only.
  std::string data_directory = {};
  // A topic that does not exist is created when something is published to it, or when a
  // subscription to it is created.
  bool auto_create = false;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_BROKER_BROKER_OPTIONS_H_
