// The port of a gRPC server. Over TLS gRPC has its port to itself. With plain text the front door
// has it, and hands over the connections that are gRPC's (front_door.h).
#ifndef POSTBOX_WORKER_EMULATOR_LISTENING_PORT_H_
#define POSTBOX_WORKER_EMULATOR_LISTENING_PORT_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "worker/emulator/front_door.h"

namespace postbox::emulator {

class ListeningPort {
 public:
  // Before the server is built. Port 0 takes a free one.
  absl::Status Open(const std::string& host, int port, bool tls,
                    const std::shared_ptr<grpc::ServerCredentials>& credentials,
                    grpc::ServerBuilder* builder);
  // After the server was started.
  void Start();
  // Before the server is shut down.
  void Close() { front_door_.reset(); }

  int number() const { return number_; }  // 0: the port could not be had

 private:
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<FrontDoor> front_door_;  // null: gRPC listens itself
  int number_ = 0;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_LISTENING_PORT_H_
