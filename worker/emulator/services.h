// The gRPC services of an emulator.
#ifndef POSTBOX_WORKER_EMULATOR_SERVICES_H_
#define POSTBOX_WORKER_EMULATOR_SERVICES_H_

#include <grpcpp/grpcpp.h>

#include "worker/emulator/answer_first.h"
#include "worker/emulator/broker/broker.h"
#include "worker/emulator/call_gate.h"
#include "worker/emulator/faults_service.h"
#include "worker/emulator/iam_service.h"
#include "worker/emulator/publisher_service.h"
#include "worker/emulator/schema_service.h"
#include "worker/emulator/subscriber_service.h"
#include "worker/emulator/unknown_methods.h"

namespace postbox::emulator {

class Services {
 public:
  Services(Broker* broker, CallGate* gate, AnswerFirst* answer_first)
      : publisher_(broker, gate, answer_first),
        subscriber_(broker, gate),
        faults_(broker, gate),
        iam_(broker, gate),
        schemas_(broker, gate),
        unknown_methods_(gate) {}

  void Register(grpc::ServerBuilder* builder) {
    builder->RegisterService(&publisher_);
    builder->RegisterService(&subscriber_);
    builder->RegisterService(&faults_);
    builder->RegisterService(&iam_);
    builder->RegisterService(&schemas_);
    builder->RegisterCallbackGenericService(&unknown_methods_);
  }

 private:
  PublisherService publisher_;
  SubscriberService subscriber_;
  FaultsService faults_;
  IamService iam_;
  SchemaService schemas_;
  UnknownMethods unknown_methods_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_SERVICES_H_
