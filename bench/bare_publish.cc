// bare_publish: publishes with a plain loop over gRPC's generated client and without a database.
// The worker is compared with it. It sends messages like those that bench/lib/bed.py makes, in
// requests of the same size and with as many requests in flight.
//
//   bare_publish ADDRESS MESSAGES GROUP IN_FLIGHT CHANNELS [KEYS]
//
// A request has GROUP messages. If GROUP has a fraction, requests differ by one message. At most
// IN_FLIGHT requests are in flight over CHANNELS connections. With KEYS > 0 the messages have that
// many ordering keys. If IN_FLIGHT and GROUP are 1, it prints the time at which each message was
// sent, in microseconds since 1970; otherwise nothing.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "google/pubsub/v1/pubsub.grpc.pb.h"
#include "proto/rules/url_encode.h"

namespace {

namespace pubsub = google::pubsub::v1;

constexpr char kTopic[] = "projects/postbox-bench/topics/catalog.video.events";

void Fill(pubsub::PublishRequest* request, int64_t first, int64_t count, const std::string& key) {
  request->set_topic(kTopic);
  for (int64_t n = first; n < first + count; ++n) {
    pubsub::PubsubMessage* message = request->add_messages();
    const std::string number = std::to_string(n);
    message->set_data(R"({"title": "a title of moderate length", "video_id": "v_)" + number +
                      "\"}");
    auto& attributes = *message->mutable_attributes();
    attributes["event_id"] = "019aa000-0000-7000-8000-000000000000";
    attributes["event_type"] = "video.updated";
    attributes["aggregate_id"] = key.empty() ? "v_" + number : key;
    attributes["aggregate_type"] = "video";
    attributes["version"] = number;
    attributes["occurred_at"] = "2026-01-01T00:00:00.000000Z";
    attributes["schema_version"] = "v1";
    if (!key.empty()) message->set_ordering_key(key);
  }
}

struct Call {
  grpc::ClientContext context;
  pubsub::PublishResponse response;
  grpc::Status status;
  std::unique_ptr<grpc::ClientAsyncResponseReader<pubsub::PublishResponse>> reader;
};

long long NowMicros() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr, "usage: bare_publish ADDRESS MESSAGES GROUP IN_FLIGHT CHANNELS [KEYS]\n");
    return 2;
  }
  const std::string address = argv[1];
  const int64_t total = std::atoll(argv[2]);
  const double group = std::max(1.0, std::atof(argv[3]));
  const int in_flight = std::atoi(argv[4]);
  const int channels = std::atoi(argv[5]);
  const int64_t keys = argc > 6 ? std::atoll(argv[6]) : 0;

  std::vector<std::unique_ptr<pubsub::Publisher::Stub>> stubs;
  for (int i = 0; i < channels; ++i) {
    grpc::ChannelArguments arguments;
    arguments.SetInt("postbox.channel", i);  // channels with equal arguments share a connection
    stubs.push_back(pubsub::Publisher::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments)));
  }
  const std::string route = "topic=" + postbox::pubsub::UrlEncode(kTopic);
  const std::string api_client = "gl-cpp/202002 bare_publish/1 grpc/" + grpc::Version();
  grpc::CompletionQueue queue;
  int64_t sent = 0;
  int64_t requests = 0;
  int outstanding = 0;
  std::vector<long long> times;
  const auto send = [&] {
    ++requests;
    const int64_t upto = std::llround(static_cast<double>(requests) * group);
    const int64_t count = std::clamp<int64_t>(upto - sent, 1, total - sent);
    pubsub::PublishRequest request;
    Fill(&request, sent + 1, count, keys > 0 ? "v_" + std::to_string(requests % keys) : "");
    sent += count;
    ++outstanding;
    auto* call = new Call;
    // What the service wants of every client, and every client library of Google's sends.
    call->context.AddMetadata("x-goog-request-params", route);
    call->context.AddMetadata("x-goog-api-client", api_client);
    auto& stub = stubs[static_cast<std::size_t>(requests) % stubs.size()];
    if (in_flight == 1 && count == 1) times.push_back(NowMicros());
    call->reader = stub->AsyncPublish(&call->context, request, &queue);
    call->reader->Finish(&call->response, &call->status, call);
  };
  while (sent < total && outstanding < in_flight) send();
  while (outstanding > 0) {
    void* tag = nullptr;
    bool ok = false;
    if (!queue.Next(&tag, &ok)) break;
    const std::unique_ptr<Call> call(static_cast<Call*>(tag));
    if (!call->status.ok()) {
      std::fprintf(stderr, "bare_publish: %s\n", call->status.error_message().c_str());
      return 1;
    }
    --outstanding;
    if (sent < total) send();
  }
  for (const long long time : times) std::printf("%lld\n", time);
  return 0;
}
