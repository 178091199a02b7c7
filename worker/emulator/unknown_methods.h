// Answers the methods that the emulator does not have: UNIMPLEMENTED, with the name of the method.
#ifndef POSTBOX_WORKER_EMULATOR_UNKNOWN_METHODS_H_
#define POSTBOX_WORKER_EMULATOR_UNKNOWN_METHODS_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include "worker/emulator/call_gate.h"

namespace postbox::emulator {

class UnknownMethods final : public grpc::CallbackGenericService {
 public:
  explicit UnknownMethods(CallGate* gate) : gate_(gate) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  CallGate* const gate_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_UNKNOWN_METHODS_H_
