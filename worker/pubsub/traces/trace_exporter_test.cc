#include "worker/pubsub/traces/trace_exporter.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <vector>

#include "opentelemetry/proto/collector/trace/v1/trace_service.grpc.pb.h"
#include "proto/rules/otlp_endpoint.h"
#include "worker/pubsub/traces/trace_wire.h"

namespace postbox::pubsub {
namespace {

namespace collector = opentelemetry::proto::collector::trace::v1;
using namespace std::chrono_literals;

class Collector final : public collector::TraceService::Service {
 public:
  Collector() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~Collector() override { server_->Shutdown(std::chrono::system_clock::now()); }

  grpc::Status Export(grpc::ServerContext* context,
                      const collector::ExportTraceServiceRequest* request,
                      collector::ExportTraceServiceResponse* response) override {
    std::unique_lock<std::mutex> lock(mutex_);
    requests_.push_back(*request);
    const auto key = context->client_metadata().find("api-key");
    if (key != context->client_metadata().end()) key_ = {key->second.data(), key->second.size()};
    changed_.notify_all();
    while (hangs_ && !context->IsCancelled()) changed_.wait_for(lock, 10ms);
    response->mutable_partial_success()->set_rejected_spans(rejected_);
    return grpc::Status::OK;
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  void Hang() { hangs_ = true; }
  void Reject(int spans) { rejected_ = spans; }
  std::vector<collector::ExportTraceServiceRequest> requests() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return requests_;
  }
  std::string key() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return key_;
  }
  void AwaitRequest() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, 30s, [this] { return !requests_.empty(); });
  }

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<collector::ExportTraceServiceRequest> requests_;
  std::string key_;  // of the last request with one
  bool hangs_ = false;
  int rejected_ = 0;
};

std::unique_ptr<TraceExporter> MakeExporter(const std::string& address) {
  TraceExporterOptions options;
  options.endpoint = {address, /*plaintext=*/true};
  options.service_name = "a service";
  std::string error;
  auto exporter = TraceExporter::Create(options, &error);
  EXPECT_NE(exporter, nullptr) << error;
  return exporter;
}

Span MakeSpan() {
  Span span;
  span.context = {.trace_high = 0x0102030405060708, .trace_low = 9, .span = 10, .flags = 1};
  span.parent = 11;
  span.name = "send t";
  span.start = 1000;
  span.end = 2000;
  span.Set("messaging.system", "gcp_pubsub");
  span.Set("messaging.batch.message_count", 3);
  span.links.push_back({span.context, "m-1"});
  return span;
}

TEST(TraceExporterTest, WhatIsAddedArrivesBeforeItStops) {
  Collector collector;
  const auto exporter = MakeExporter(collector.address());
  for (int i = 0; i < 1000; ++i) exporter->Add(MakeSpan());
  exporter->Stop(30s);
  int spans = 0;
  for (const auto& request : collector.requests()) {
    EXPECT_LE(request.resource_spans(0).scope_spans(0).spans_size(), 512);
    spans += request.resource_spans(0).scope_spans(0).spans_size();
  }
  EXPECT_EQ(spans, 1000);
  EXPECT_EQ(exporter->Counts().exported, 1000U);
  exporter->Add(MakeSpan());  // is dropped, and harms nothing
}

TEST(TraceExporterTest, ARequestHasTheHeadersOfTheEnvironment) {
  Collector collector;
  TraceExporterOptions options;
  options.endpoint = {collector.address(), /*plaintext=*/true};
  std::string error;
  setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b", 1);
  EXPECT_TRUE(TraceHeaders(&options.headers, &error)) << error;
  const auto exporter = TraceExporter::Create(options, &error);
  exporter->Add(MakeSpan());
  exporter->Stop(30s);
  EXPECT_EQ(collector.key(), "a b");
  setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key", 1);
  EXPECT_FALSE(TraceHeaders(&options.headers, &error));
  EXPECT_TRUE(error.starts_with("OTEL_EXPORTER_OTLP_HEADERS: ")) << error;
  unsetenv("OTEL_EXPORTER_OTLP_HEADERS");
}

TEST(TraceExporterTest, NothingWaitsForACollectorThatHangs) {
  Collector collector;
  collector.Hang();
  const auto exporter = MakeExporter(collector.address());
  exporter->Add(MakeSpan());
  collector.AwaitRequest();
  for (int i = 0; i < 20'000; ++i) exporter->Add(MakeSpan());
  EXPECT_GE(exporter->Counts().dropped, 10'000U);
  EXPECT_TRUE(exporter->TakeDropped());
  const auto begun = std::chrono::steady_clock::now();
  exporter->Stop(100ms);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 5s);
}

TEST(TraceExporterTest, WhatACollectorThatIsAwayDoesNotTakeIsCounted) {
  const auto exporter = MakeExporter("127.0.0.1:1");
  exporter->Add(MakeSpan());
  exporter->Stop(30s);
  EXPECT_EQ(exporter->Counts().dropped, 1U);
  const auto dropped = exporter->TakeDropped();
  ASSERT_TRUE(dropped);
  EXPECT_TRUE(dropped->error.starts_with("UNAVAILABLE")) << dropped->error;
}

TEST(TraceExporterTest, WhatTheCollectorRejectsIsCounted) {
  Collector collector;
  collector.Reject(1);
  const auto exporter = MakeExporter(collector.address());
  exporter->Add(MakeSpan());
  exporter->Add(MakeSpan());
  exporter->Stop(30s);
  EXPECT_EQ(exporter->Counts().dropped, collector.requests().size());
}

TEST(TraceWireTest, ASpanIsWrittenAsTheProtocolHasIt) {
  Span span = MakeSpan();
  span.error_type = "UNAVAILABLE";
  span.error = "away";
  const auto request = MakeTraceRequest("a service", {span});
  const auto& of_service = request.resource_spans(0);
  EXPECT_EQ(of_service.resource().attributes(0).key(), "service.name");
  EXPECT_EQ(of_service.resource().attributes(0).value().string_value(), "a service");
  EXPECT_EQ(of_service.scope_spans(0).schema_url(), kTraceSchemaUrl);
  const auto& out = of_service.scope_spans(0).spans(0);
  const std::string trace("\1\2\3\4\5\6\7\10\0\0\0\0\0\0\0\11", 16);
  EXPECT_EQ(out.trace_id(), trace);
  EXPECT_EQ(out.span_id(), std::string("\0\0\0\0\0\0\0\12", 8));
  EXPECT_EQ(out.parent_span_id(), std::string("\0\0\0\0\0\0\0\13", 8));
  EXPECT_EQ(out.kind(), opentelemetry::proto::trace::v1::Span::SPAN_KIND_CLIENT);
  EXPECT_EQ(out.attributes(1).value().int_value(), 3);
  EXPECT_EQ(out.links(0).trace_id(), trace);
  EXPECT_EQ(out.links(0).attributes(0).value().string_value(), "m-1");
  EXPECT_EQ(out.attributes(2).key(), "error.type");
  EXPECT_EQ(out.status().code(), opentelemetry::proto::trace::v1::Status::STATUS_CODE_ERROR);
  EXPECT_EQ(out.status().message(), "away");
}

TEST(TraceWireTest, WhatIsNoTextSpoilsNoRequest) {
  Span span = MakeSpan();
  span.Set("key", "a\xff\xfe");
  span.error_type = "e";
  span.error = std::string(1023, 'x') + "\xc3\xa4 and more";
  const auto request = MakeTraceRequest("a service", {span});
  collector::ExportTraceServiceRequest read;
  ASSERT_TRUE(read.ParseFromString(request.SerializeAsString()));
  const auto& out = read.resource_spans(0).scope_spans(0).spans(0);
  EXPECT_EQ(out.attributes(2).value().string_value(), "a??");
  EXPECT_EQ(out.status().message(), std::string(1023, 'x') + "?");
}

TEST(OtlpEndpointTest, ThePortMayBeLeftOut) {
  Endpoint endpoint;
  std::string error;
  EXPECT_TRUE(ParseOtlpEndpoint("http://collector", &endpoint, &error));
  EXPECT_EQ(endpoint, (Endpoint{"collector:4317", true}));
  EXPECT_TRUE(ParseOtlpEndpoint("https://[::1]:443/", &endpoint, &error));
  EXPECT_EQ(endpoint, (Endpoint{"[::1]:443", false}));
  for (const char* bad : {"", "collector:4317", "ftp://c", "http://", "http://c/v1/traces",
                          "http://c:0", "http://user@c", "grpc://c:4317"}) {
    EXPECT_FALSE(ParseOtlpEndpoint(bad, &endpoint, &error)) << bad;
  }
}

}  // namespace
}  // namespace postbox::pubsub
