// The emulator as a gRPC server: its services, the thread that calls Tick, and its shutdown. Where
// it serves plain text, its port answers HTTP/1.1, too (front_door.h).
#ifndef POSTBOX_WORKER_EMULATOR_SERVER_H_
#define POSTBOX_WORKER_EMULATOR_SERVER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/emulator/auth/auth_server.h"
#include "worker/emulator/auth/tls.h"
#include "worker/emulator/broker/broker.h"
#include "worker/emulator/faults.h"

namespace postbox::emulator {

class Server {
 public:
  // Listens on host:port; port 0 takes a free one. Messages are delivered `delivery_delay` after
  // their Publish was answered, less than a second (answer_first.h).
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const std::string& host, int port, BrokerOptions options,
      absl::Duration delivery_delay = absl::ZeroDuration(), const TlsOptions& tls = {});
  virtual ~Server() = default;  // ends open calls within seconds and joins all threads

  virtual int port() const = 0;
  virtual Broker* broker() = 0;
  virtual Faults* faults() = 0;
};

// Where people, and the tools of Google, expect an emulator.
inline constexpr int kUsualPort = 8085;

struct EmulatorOptions {
  std::string host = "127.0.0.1";  // a name or an address, IPv6 with or without brackets
  std::optional<int> port;  // 0: a free one; nothing: kUsualPort, or a free one if that is taken
  std::string project = "postbox-dev";
  std::vector<std::string> topics;         // NAME
  std::vector<std::string> subscriptions;  // NAME=TOPIC[,option...]; see resource_spec.h
  std::vector<std::string> faults;         // see ParseFault
  BrokerOptions broker;
  int delivery_delay_ms = 20;
  TlsOptions tls;
  std::vector<std::string> accounts;  // EMAIL=FILE; see bearer.h
  // What tokens may have as their audience.
  std::vector<std::string> hosts = {"localhost", "127.0.0.1"};
  AuthOptions auth;
  bool enforce_iam = false;
  std::vector<std::string> administrators;  // who may do everything when IAM is enforced
};

// `postbox emulator`: prints a line with its address, and what clients need to find it, and serves
// until SIGTERM or SIGINT. Returns the exit status.
int RunEmulator(EmulatorOptions options);

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_SERVER_H_
