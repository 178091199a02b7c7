// bare_pull: receives messages with a plain loop over gRPC's generated client, and acknowledges
// each response at once on its stream. The puller is compared with it.
//
//   bare_pull ADDRESS SUBSCRIPTION MESSAGES OUTSTANDING
//
// At most OUTSTANDING messages are not acknowledged. It ends when MESSAGES have come, and prints
// the microseconds from the first response to the last acknowledgement.
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "google/pubsub/v1/pubsub.grpc.pb.h"
#include "proto/rules/url_encode.h"

namespace {

namespace pubsub = google::pubsub::v1;
using Clock = std::chrono::steady_clock;

int Run(const std::string& address, const std::string& subscription, int64_t total,
        int64_t outstanding) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  auto stub = pubsub::Subscriber::NewStub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  context.AddMetadata("x-goog-request-params",
                      "subscription=" + postbox::pubsub::UrlEncode(subscription));
  auto stream = stub->StreamingPull(&context);
  pubsub::StreamingPullRequest first;
  first.set_subscription(subscription);
  first.set_stream_ack_deadline_seconds(60);
  first.set_max_outstanding_messages(outstanding);
  if (!stream->Write(first)) return 1;
  int64_t received = 0;
  Clock::time_point begin;
  pubsub::StreamingPullResponse response;
  while (received < total) {
    if (!stream->Read(&response)) {
      std::fprintf(stderr, "bare_pull: %s\n", stream->Finish().error_message().c_str());
      return 1;
    }
    if (response.received_messages().empty()) continue;
    if (received == 0) begin = Clock::now();
    pubsub::StreamingPullRequest acks;
    for (const auto& message : response.received_messages()) acks.add_ack_ids(message.ack_id());
    received += response.received_messages_size();
    if (!stream->Write(acks)) return 1;
  }
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
  std::printf("%lld\n", static_cast<long long>(took.count()));
  stream->WritesDone();
  while (stream->Read(&response)) {
  }
  return stream->Finish().ok() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: bare_pull ADDRESS SUBSCRIPTION MESSAGES OUTSTANDING\n");
    return 2;
  }
  return Run(argv[1], argv[2], std::atoll(argv[3]), std::atoll(argv[4]));
}
