#include "worker/emulator/listening_port.h"

#include <utility>

#include "worker/emulator/host_port.h"

namespace postbox::emulator {

absl::Status ListeningPort::Open(const std::string& host, int port, bool tls,
                                 const std::shared_ptr<grpc::ServerCredentials>& credentials,
                                 grpc::ServerBuilder* builder) {
  if (tls) {
    builder->AddListeningPort(HostPort(host, port), credentials, &number_);
    return absl::OkStatus();
  }
  auto front_door = FrontDoor::Listen(host, port);
  if (!front_door.ok()) return front_door.status();
  front_door_ = *std::move(front_door);
  number_ = front_door_->port();
  acceptor_ = builder->experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
  return absl::OkStatus();
}

void ListeningPort::Start() {
  if (front_door_ == nullptr) return;
  front_door_->Start([this](int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    acceptor_->HandleNewConnection(&connection);
  });
}

}  // namespace postbox::emulator
