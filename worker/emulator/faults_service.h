// postbox.emulator.v1.Faults, by which tests inject faults into an emulator and read its counters.
#ifndef POSTBOX_WORKER_EMULATOR_FAULTS_SERVICE_H_
#define POSTBOX_WORKER_EMULATOR_FAULTS_SERVICE_H_

#include "postbox/emulator/v1/faults.grpc.pb.h"
#include "worker/emulator/broker/broker.h"
#include "worker/emulator/call_gate.h"

namespace postbox::emulator {

class FaultsService final : public postbox::emulator::v1::Faults::Service {
 public:
  FaultsService(Broker* broker, CallGate* gate) : broker_(broker), gate_(gate) {}

  grpc::Status AddFault(grpc::ServerContext* context,
                        const postbox::emulator::v1::AddFaultRequest* request,
                        postbox::emulator::v1::AddFaultResponse* response) override;
  grpc::Status ClearFaults(grpc::ServerContext* context,
                           const postbox::emulator::v1::ClearFaultsRequest* request,
                           postbox::emulator::v1::ClearFaultsResponse* response) override;
  grpc::Status Stats(grpc::ServerContext* context,
                     const postbox::emulator::v1::StatsRequest* request,
                     postbox::emulator::v1::StatsResponse* response) override;

 private:
  Broker* const broker_;
  CallGate* const gate_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_FAULTS_SERVICE_H_
