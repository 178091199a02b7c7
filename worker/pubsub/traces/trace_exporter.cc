#include "worker/pubsub/traces/trace_exporter.h"

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/async_unary_call.h>
#include <grpcpp/support/byte_buffer.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include "proto/rules/error_class.h"
#include "worker/pubsub/channel.h"
#include "worker/pubsub/event_loop.h"
#include "worker/pubsub/traces/span_queue.h"
#include "worker/pubsub/traces/trace_wire.h"

namespace postbox::pubsub {
namespace {

using Clock = EventLoop::Clock;

constexpr std::chrono::seconds kExportTimeout{10};
constexpr char kExportMethod[] = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

// What both the callers' threads and the loop's thread use.
struct SharedQueue {
  std::mutex mutex;
  std::condition_variable became_idle;
  SpanQueue spans;
  bool stopped = false;
};

// The part that lives on the loop's thread, constructor and destructor included.
class TraceExporterCore {
 public:
  TraceExporterCore(EventLoop* loop, std::shared_ptr<SharedQueue> queue,
                    const TraceExporterOptions& options)
      : loop_(loop),
        queue_(std::move(queue)),
        service_name_(options.service_name),
        headers_(options.headers),
        stub_(options.endpoint,
              options.endpoint.plaintext ? grpc::InsecureChannelCredentials()
                                         : grpc::SslCredentials({}),
              0) {}

  // Begins an export that is due, or sets the timer for it.
  void Look() {
    loop_->Cancel(timer_);
    timer_ = {};
    std::vector<Span> batch;
    const auto now = Clock::now();
    {
      const std::lock_guard<std::mutex> lock(queue_->mutex);
      if (queue_->spans.idle()) queue_->became_idle.notify_all();
      const auto due = queue_->spans.NextExport();
      if (!due || closed_) return;
      if (*due > now) {
        timer_ = loop_->After(*due - now, [this] { Look(); });
        return;
      }
      batch = queue_->spans.Take();
    }
    Export(batch);
  }

  void Close() {
    closed_ = true;
    loop_->Cancel(timer_);
    if (call_ != nullptr) call_->context.TryCancel();
  }

 private:
  struct Call {
    grpc::ClientContext context;
    grpc::ByteBuffer response;
    grpc::Status status;
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
  };

  void Export(const std::vector<Span>& spans) {
    const grpc::Slice message(MakeTraceRequest(service_name_, spans).SerializeAsString());
    call_ = std::make_unique<Call>();
    call_->context.set_deadline(std::chrono::system_clock::now() + kExportTimeout);
    for (const auto& [name, value] : headers_) call_->context.AddMetadata(name, value);
    call_->reader = stub_.Get()->PrepareUnaryCall(
        &call_->context, kExportMethod, grpc::ByteBuffer(&message, 1), loop_->completion_queue());
    call_->reader->StartCall();
    call_->reader->Finish(&call_->response, &call_->status,
                          loop_->Tag([this](bool) { OnAnswer(); }));
  }

  void OnAnswer() {
    const std::unique_ptr<Call> call = std::move(call_);
    {
      const std::lock_guard<std::mutex> lock(queue_->mutex);
      if (call->status.ok()) {
        opentelemetry::proto::collector::trace::v1::ExportTraceServiceResponse response;
        grpc::Slice answer;
        if (call->response.DumpToSingleSlice(&answer).ok()) {
          response.ParseFromArray(answer.begin(), static_cast<int>(answer.size()));
        }
        const auto& partial = response.partial_success();
        queue_->spans.Exported(
            static_cast<std::size_t>(std::max<std::int64_t>(partial.rejected_spans(), 0)),
            partial.error_message());
      } else {
        queue_->spans.Failed(StatusText(call->status.error_code(), call->status.error_message()),
                             Clock::now());
      }
    }
    Look();
  }

  EventLoop* const loop_;
  const std::shared_ptr<SharedQueue> queue_;
  const std::string service_name_;
  const OtlpHeaders headers_;
  RenewedStub<grpc::GenericStub> stub_;
  EventLoop::TimerId timer_;
  std::unique_ptr<Call> call_;  // null: none is under way
  bool closed_ = false;
};

class TraceExporterImpl final : public TraceExporter {
 public:
  ~TraceExporterImpl() override { Stop(std::chrono::milliseconds(0)); }

  bool Start(const TraceExporterOptions& options, std::string* error) {
    loop_ = EventLoop::Start("postbox traces", error);
    if (loop_ == nullptr) return false;
    loop_->Run([&] { core_ = std::make_unique<TraceExporterCore>(loop_.get(), queue_, options); });
    return true;
  }

  void Add(Span span) override {
    const std::lock_guard<std::mutex> lock(queue_->mutex);
    if (queue_->stopped) return;
    if (queue_->spans.Add(std::move(span), Clock::now())) {
      loop_->Post([this] { core_->Look(); });
    }
  }

  TraceCounts Counts() const override {
    const std::lock_guard<std::mutex> lock(queue_->mutex);
    return queue_->spans.counts();
  }
  std::optional<DroppedSpans> TakeDropped() override {
    const std::lock_guard<std::mutex> lock(queue_->mutex);
    return queue_->spans.TakeDropped(Clock::now());
  }

  void Stop(std::chrono::milliseconds limit) override {
    if (loop_ == nullptr) return;
    {
      std::unique_lock<std::mutex> lock(queue_->mutex);
      queue_->stopped = true;
      queue_->spans.Hurry();
      loop_->Post([this] { core_->Look(); });
      queue_->became_idle.wait_for(lock, limit, [this] { return queue_->spans.idle(); });
    }
    loop_->Run([this] { core_->Close(); });
    if (!loop_->Stop([this] { core_.reset(); })) {
      // A call that has not ended although it was cancelled still refers to these.
      static_cast<void>(core_.release());
      static_cast<void>(loop_.release());
    }
    loop_.reset();
  }

 private:
  const std::shared_ptr<SharedQueue> queue_ = std::make_shared<SharedQueue>();
  std::unique_ptr<TraceExporterCore> core_;  // made and destroyed on the loop's thread
  std::unique_ptr<EventLoop> loop_;
};

}  // namespace

std::unique_ptr<TraceExporter> TraceExporter::Create(TraceExporterOptions options,
                                                     std::string* error) {
  auto exporter = std::make_unique<TraceExporterImpl>();
  if (!exporter->Start(options, error)) return nullptr;
  return exporter;
}

std::string TraceServiceName(const char* otherwise) {
  const char* name = std::getenv("OTEL_SERVICE_NAME");
  return name == nullptr || *name == '\0' ? otherwise : name;
}

bool TraceHeaders(OtlpHeaders* headers, std::string* error) {
  constexpr char kVariable[] = "OTEL_EXPORTER_OTLP_HEADERS";
  const char* text = std::getenv(kVariable);
  if (text == nullptr || ParseOtlpHeaders(text, headers, error)) return true;
  *error = std::string(kVariable) + ": " + *error;
  return false;
}

}  // namespace postbox::pubsub
