// See traces.h.
#include "worker/publisher/traces.h"

#include <chrono>
#include <utility>

#include "extension/shared/metrics.h"
#include "extension/shared/settings.h"
#include "proto/rules/otlp_endpoint.h"
#include "worker/publisher/base/limited_log.h"
#include "worker/publisher/base/server_text.h"
#include "worker/publisher/source/event_spans.h"

namespace postbox::publisher {
namespace {

// Half a second, as also at the end of the puller: a collector that answers takes less.
constexpr std::chrono::milliseconds kFlushTime(500);

}  // namespace

void Traces::FollowSettings() {
  if (endpoint_ == settings().otlp_endpoint) return;
  Stop();
  endpoint_ = settings().otlp_endpoint;
  if (endpoint_.empty()) return;
  pubsub::TraceExporterOptions options;
  options.service_name = pubsub::TraceServiceName("postbox-publisher");
  std::string error;
  if (pubsub::ParseOtlpEndpoint(endpoint_, &options.endpoint, &error) &&
      pubsub::TraceHeaders(&options.headers, &error)) {
    exporter_ = pubsub::TraceExporter::Create(std::move(options), &error);
  }
  if (exporter_ == nullptr) {
    LogLimited("no traces", {.level = WARNING, .message = "traces are off", .detail = error});
    return;
  }
  UseEventSpans(exporter_);
}

void Traces::CountDropped() {
  const std::uint64_t dropped = exporter_->Counts().dropped;
  if (metrics_state() != nullptr) Add(&metrics_state()->spans_dropped, dropped - counted_);
  counted_ = dropped;
}

void Traces::Look() {
  if (exporter_ == nullptr) return;
  CountDropped();
  const auto dropped = exporter_->TakeDropped();
  if (!dropped) return;
  const std::string error = Shortened(ServerText(dropped->error), kMaxReason);
  const auto spans = static_cast<unsigned long long>(dropped->spans);
  const auto all = static_cast<unsigned long long>(exporter_->Counts().dropped);
  Pg([&] {
    ereport(WARNING,
            (errmsg("%llu spans of traces were dropped, %llu in all", spans, all),
             errdetail("The collector at %s: %s", endpoint_.c_str(), error.c_str()),
             errhint("Events are not affected. Check postbox.otlp_endpoint and the collector.")));
  });
}

void Traces::Stop() noexcept {
  if (exporter_ == nullptr) return;
  UseEventSpans(nullptr);
  exporter_->Stop(kFlushTime);
  CountDropped();
  exporter_.reset();
  counted_ = 0;
}

}  // namespace postbox::publisher
