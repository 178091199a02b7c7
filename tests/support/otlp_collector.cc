// A collector of traces for tests: takes spans over OTLP/gRPC, prints its address when it listens,
// and then one line for each request: the ExportTraceServiceRequest in JSON.
//   otlp_collector [HOST:PORT]     the port may be 0, which is the default
#include <google/protobuf/util/json_util.h>
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>

#include "opentelemetry/proto/collector/trace/v1/trace_service.grpc.pb.h"

namespace {

namespace collector = opentelemetry::proto::collector::trace::v1;

class Collector final : public collector::TraceService::Service {
 public:
  grpc::Status Export(grpc::ServerContext* /*context*/,
                      const collector::ExportTraceServiceRequest* request,
                      collector::ExportTraceServiceResponse* /*response*/) override {
    std::string json;
    if (!google::protobuf::util::MessageToJsonString(*request, &json).ok()) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "not expressible in JSON"};
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    std::cout << json << std::endl;
    return grpc::Status::OK;
  }

 private:
  std::mutex mutex_;
};

}  // namespace

int main(int count, char** arguments) {
  const std::string address = count > 1 ? arguments[1] : "127.0.0.1:0";
  Collector service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    std::fprintf(stderr, "otlp_collector: cannot listen on %s\n", address.c_str());
    return 1;
  }
  std::cout << "listening on " << address.substr(0, address.rfind(':')) << ":" << port << std::endl;
  server->Wait();
}
