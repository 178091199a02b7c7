// Sends finished spans to a collector over OTLP/gRPC (opentelemetry.proto.collector.trace.v1).
//
// Plain header: standard library only. The exporter has its own I/O thread, which is started with
// every signal blocked. Add() never waits: spans go into a bounded queue (span_queue.h). Every
// export has a deadline, and only the next export waits for it.
#ifndef POSTBOX_WORKER_PUBSUB_TRACES_TRACE_EXPORTER_H_
#define POSTBOX_WORKER_PUBSUB_TRACES_TRACE_EXPORTER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "proto/rules/endpoint.h"
#include "proto/rules/otlp_headers.h"
#include "worker/pubsub/traces/span.h"

namespace postbox::pubsub {

struct TraceExporterOptions {
  Endpoint endpoint;
  std::string service_name;  // `service.name` of the spans
  OtlpHeaders headers;       // of each request
};

// Spans of this process so far.
struct TraceCounts {
  std::uint64_t exported = 0;
  std::uint64_t dropped = 0;
};

struct DroppedSpans {
  std::uint64_t spans = 0;
  std::string error;  // of the last of them
};

class TraceExporter : public SpanSink {
 public:
  // It does not connect. If no thread can be started, returns null and puts one sentence into
  // `error`.
  static std::unique_ptr<TraceExporter> Create(TraceExporterOptions options, std::string* error);

  // What follows may be called on any thread.
  virtual TraceCounts Counts() const = 0;
  // What was dropped since the last time; at most once a minute.
  virtual std::optional<DroppedSpans> TakeDropped() = 0;
  // Exports what waits, for at most `limit`, and ends the thread. What is added later is dropped.
  // The destructor does so with no time.
  virtual void Stop(std::chrono::milliseconds limit) = 0;
};

// The service name: OTEL_SERVICE_NAME of the environment, or else this one.
std::string TraceServiceName(const char* otherwise);
// The headers of OTEL_EXPORTER_OTLP_HEADERS of the environment. On failure returns false and puts
// one sentence without any value into `error`.
bool TraceHeaders(OtlpHeaders* headers, std::string* error);

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_TRACES_TRACE_EXPORTER_H_
