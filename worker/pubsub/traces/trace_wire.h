// Spans as the request that a collector takes.
#ifndef POSTBOX_WORKER_PUBSUB_TRACES_TRACE_WIRE_H_
#define POSTBOX_WORKER_PUBSUB_TRACES_TRACE_WIRE_H_

#include <string>
#include <string_view>
#include <vector>

#include "opentelemetry/proto/collector/trace/v1/trace_service.pb.h"
#include "worker/pubsub/traces/span.h"

namespace postbox::pubsub {

// The version of the conventions that the spans follow.
inline constexpr char kTraceSchemaUrl[] = "https://opentelemetry.io/schemas/1.36.0";

// Texts that are not UTF-8, of which a collector would refuse the whole request, are made so.
opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest MakeTraceRequest(
    const std::string& service_name, const std::vector<Span>& spans);

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_TRACES_TRACE_WIRE_H_
