#include "worker/emulator/fault_client.h"

#include <google/protobuf/util/json_util.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include "postbox/emulator/v1/faults.grpc.pb.h"
#include "worker/emulator/faults.h"

namespace postbox::emulator {
namespace {

namespace v1 = postbox::emulator::v1;

constexpr std::chrono::seconds kTimeout{30};

int Fail(const std::string& message) {
  std::fprintf(stderr, "postbox emulator-fault: %s\n", message.c_str());
  return 1;
}

}  // namespace

int RunFaultClient(const FaultClientOptions& options) {
  v1::AddFaultRequest request;
  for (const std::string& spec : options.specs) {
    const auto fault = ParseFault(spec);
    if (!fault.ok()) return Fail(std::string(fault.status().message()));
    *request.add_faults() = *fault;
  }
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // plain text goes through no proxy
  const auto stub = v1::Faults::NewStub(
      grpc::CreateCustomChannel(options.address, grpc::InsecureChannelCredentials(), arguments));
  const auto call = [](auto rpc) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kTimeout);
    return rpc(&context);
  };
  if (options.clear) {
    v1::ClearFaultsResponse response;
    const grpc::Status status = call([&](grpc::ClientContext* context) {
      return stub->ClearFaults(context, v1::ClearFaultsRequest(), &response);
    });
    if (!status.ok()) return Fail(status.error_message());
  }
  if (request.faults_size() > 0) {
    v1::AddFaultResponse response;
    const grpc::Status status = call(
        [&](grpc::ClientContext* context) { return stub->AddFault(context, request, &response); });
    if (!status.ok()) return Fail(status.error_message());
  }
  if (options.stats) {
    v1::StatsResponse response;
    const grpc::Status status = call([&](grpc::ClientContext* context) {
      return stub->Stats(context, v1::StatsRequest(), &response);
    });
    if (!status.ok()) return Fail(status.error_message());
    google::protobuf::util::JsonPrintOptions print;
    print.always_print_primitive_fields = true;
    print.preserve_proto_field_names = true;
    std::string json;
    if (!google::protobuf::util::MessageToJsonString(response, &json, print).ok()) {
      return Fail("the counters cannot be printed");
    }
    std::printf("%s\n", json.c_str());
  }
  return 0;
}

}  // namespace postbox::emulator
