#include "worker/emulator/faults_service.h"

namespace postbox::emulator {

grpc::Status FaultsService::AddFault(grpc::ServerContext* /*context*/,
                                     const v1::AddFaultRequest* request,
                                     v1::AddFaultResponse* /*response*/) {
  for (const Fault& fault : request->faults()) gate_->faults()->Add(fault);
  // An open stream that has nothing to send would not notice the change.
  broker_->WakeAll();
  return grpc::Status::OK;
}

grpc::Status FaultsService::ClearFaults(grpc::ServerContext* /*context*/,
                                        const v1::ClearFaultsRequest* /*request*/,
                                        v1::ClearFaultsResponse* /*response*/) {
  gate_->faults()->Clear();
  broker_->WakeAll();
  return grpc::Status::OK;
}

grpc::Status FaultsService::Stats(grpc::ServerContext* /*context*/,
                                  const v1::StatsRequest* /*request*/,
                                  v1::StatsResponse* response) {
  broker_->DeliverAccepted();
  for (const auto& [name, counters] : gate_->Counters()) {
    auto* rpc = response->add_rpcs();
    rpc->set_name(name);
    rpc->set_calls(counters.calls);
    rpc->set_errors(counters.errors);
  }
  for (const SubscriptionStats& stats : broker_->Stats()) {
    auto* subscription = response->add_subscriptions();
    subscription->set_name(stats.name);
    subscription->set_backlog(stats.counters.backlog);
    subscription->set_outstanding(stats.counters.leased);
    subscription->set_streams(stats.streams);
    subscription->set_delivered(stats.counters.delivered);
    subscription->set_redelivered(stats.counters.redelivered);
    subscription->set_acked(stats.counters.acked);
    subscription->set_nacked(stats.counters.nacked);
    subscription->set_expired(stats.counters.expired);
    subscription->set_dead_lettered(stats.counters.dead_lettered);
  }
  response->set_messages_published(broker_->messages_published());
  response->set_faults_fired(gate_->faults()->fired());
  response->set_faults_waiting(gate_->faults()->waiting());
  return grpc::Status::OK;
}

}  // namespace postbox::emulator
