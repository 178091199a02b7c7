// Ties the scheduler (what is sent when) to the transport (gRPC) on the loop's thread, and that thread to the caller's.
//
// Between the threads lie two lists under one mutex. Commands go in, in the caller's order: a message, or "these results
// were taken". That order decides whether a message comes before or after the caller knew of a failure of its key.
// Results come out; the eventfd is written when the list stops being empty. While many requests are in flight, answers
// come close together, and waking the caller for each would cost more than the answer: then it is written a moment later,
// or as soon as there are enough.

#include "worker/pubsub/publisher.h"

#include <sys/eventfd.h>

#include <mutex>
#include <utility>
#include <variant>

#include "worker/pubsub/channel.h"
#include "worker/pubsub/credentials.h"
#include "worker/pubsub/event_loop.h"
#include "worker/pubsub/publish_scheduler.h"
#include "worker/pubsub/publish_transport.h"
#include "worker/pubsub/wire_size.h"

namespace postbox::pubsub {

namespace {

using Queue = PublishScheduler::Queue;

struct TakenResults {
  std::vector<Queue*> queues;  // one for each result
};
using Command = std::variant<OutgoingMessage, TakenResults>;

// What both threads share.
struct Shared {
  std::mutex mutex;
  std::vector<Command> commands;
  std::vector<PublishResult> results;
  std::vector<Queue*> result_queues;  // of the same length
  bool notify_due = false;            // there are results that the eventfd has not told of
  std::size_t outstanding_bytes = 0;
  int notify_fd = -1;

  // Under the mutex.
  void Notify() {
    notify_due = false;
    // Only a counter near its 64-bit limit makes it fail, and then the descriptor is readable anyway.
    if (notify_fd >= 0) static_cast<void>(eventfd_write(notify_fd, 1));
  }
};

// The eventfd is written at once while no more requests than this are in flight.
constexpr std::size_t kFewRequests = 8;
// Else when so many results wait, or so much later.
constexpr std::size_t kManyResults = 64;
constexpr std::chrono::milliseconds kNotifyDelay(1);

// What lives on the loop's thread, from its constructor to its destructor.
class Core : public PublishScheduler::Host {
 public:
  Core(EventLoop* loop, Shared* shared, const PublisherOptions& options,
       const Credentials& credentials)
      : loop_(loop),
        shared_(shared),
        transport_(
            loop, options.endpoint, credentials, options.channels,
            options.quota_project.empty() ? credentials.quota_project : options.quota_project,
            [this](std::uint64_t id, PublishScheduler::Response response) {
              scheduler_.OnResponse(id, std::move(response));
              Settle();
            }),
        scheduler_({.channels = options.channels, .publish_timeout = options.publish_timeout},
                   this) {}

  // Carries out what the caller's thread has asked for since the last time.
  void RunCommands() {
    std::vector<Command> commands;
    {
      const std::lock_guard<std::mutex> lock(shared_->mutex);
      commands.swap(shared_->commands);
    }
    for (Command& command : commands) {
      if (auto* message = std::get_if<OutgoingMessage>(&command)) {
        scheduler_.Add(std::move(*message));
      } else {
        for (Queue* queue : std::get<TakenResults>(command).queues) scheduler_.Taken(queue);
      }
    }
    if (!closed_) scheduler_.Pump();
    Settle();
  }

  void Cancel() {
    RunCommands();
    scheduler_.Cancel();
    Settle();
  }

  // Nothing is sent any more; what is in flight ends soon.
  void Close() {
    closed_ = true;
    Cancel();
    loop_->Cancel(timer_);
    loop_->Cancel(notify_timer_);
  }

 private:
  PublishScheduler::TimePoint Now() override { return std::chrono::steady_clock::now(); }
  double Random() override { return JitterRandom(); }
  void Send(const PublishScheduler::Request& request) override { transport_.Send(request); }
  void Abort(std::uint64_t request_id) override { transport_.Abort(request_id); }
  void Deliver(PublishResult result, std::size_t bytes, Queue* queue) override {
    results_.push_back(std::move(result));
    result_queues_.push_back(queue);
    result_bytes_ += bytes;
  }

  // After every event: hands the results over, and sets the timer for what the scheduler waits for.
  void Settle() {
    if (!results_.empty()) {
      const std::lock_guard<std::mutex> lock(shared_->mutex);
      shared_->outstanding_bytes -= result_bytes_;
      result_bytes_ = 0;
      if (shared_->results.empty()) {
        shared_->results.swap(results_);
        shared_->result_queues.swap(result_queues_);
        shared_->notify_due = true;
      } else {
        std::move(results_.begin(), results_.end(), std::back_inserter(shared_->results));
        shared_->result_queues.insert(shared_->result_queues.end(), result_queues_.begin(),
                                      result_queues_.end());
      }
      results_.clear();
      result_queues_.clear();
      if (shared_->notify_due) NotifySoon();
    }
    const auto wake = closed_ ? std::nullopt : scheduler_.NextWake();
    if (wake == wake_) return;
    loop_->Cancel(timer_);
    wake_ = wake;
    if (!wake) return;
    timer_ = loop_->After(*wake - Now(), [this] {
      wake_.reset();
      scheduler_.OnTime();
      Settle();
    });
  }

  // Under the mutex.
  void NotifySoon() {
    if (closed_ || scheduler_.in_flight() <= kFewRequests ||
        shared_->results.size() >= kManyResults) {
      shared_->Notify();
      return;
    }
    if (notify_timer_set_) return;
    notify_timer_set_ = true;
    notify_timer_ = loop_->After(kNotifyDelay, [this] {
      notify_timer_set_ = false;
      const std::lock_guard<std::mutex> lock(shared_->mutex);
      if (shared_->notify_due) shared_->Notify();
    });
  }

  EventLoop* const loop_;
  Shared* const shared_;
  bool closed_ = false;
  bool notify_timer_set_ = false;
  EventLoop::TimerId notify_timer_;
  std::vector<PublishResult> results_;
  std::vector<Queue*> result_queues_;
  std::size_t result_bytes_ = 0;
  std::optional<PublishScheduler::TimePoint> wake_;
  EventLoop::TimerId timer_;
  PublishTransport transport_;
  PublishScheduler scheduler_;
};

}  // namespace

class Publisher::Impl {
 public:
  explicit Impl(PublisherOptions options)
      : options_(std::move(options)), shared_(std::make_unique<Shared>()) {
    shared_->notify_fd = options_.notify_fd;
  }

  ~Impl() {
    if (loop_ == nullptr) return;
    if (core_ != nullptr) {
      loop_->Run([this] { core_->Close(); });
    }
    if (!loop_->Stop([this] { core_.reset(); })) {
      // A call that does not end even when cancelled still refers to these.
      static_cast<void>(core_.release());
      static_cast<void>(shared_.release());
      static_cast<void>(loop_.release());
    }
  }

  bool Start(std::string* error) {
    loop_ = EventLoop::Start("postbox-publish", error);
    if (loop_ == nullptr) return false;
    loop_->Run([&] {
      const auto credentials = MakeCredentials(options_.endpoint, error);
      if (credentials)
        core_ = std::make_unique<Core>(loop_.get(), shared_.get(), options_, *credentials);
    });
    return core_ != nullptr;
  }

  std::size_t Publish(std::span<Message> messages) {
    std::size_t bytes = 0;
    {
      const std::lock_guard<std::mutex> lock(shared_->mutex);
      bytes = shared_->outstanding_bytes;
    }
    // Other threads only make it less.
    std::size_t taken_bytes = 0;
    std::vector<Command> commands;
    commands.reserve(messages.size());
    const auto deadline = std::chrono::steady_clock::now() + options_.publish_timeout;
    for (Message& message : messages) {
      const std::size_t outstanding = outstanding_ + commands.size();
      const std::size_t size = MessageSizeInRequest(SizeOf(message));
      if (outstanding > 0 && (outstanding >= options_.max_outstanding_messages ||
                              bytes + taken_bytes + size > options_.max_outstanding_bytes)) {
        break;
      }
      taken_bytes += size;
      commands.emplace_back(PrepareMessage(std::move(message), deadline));
    }
    const std::size_t taken = commands.size();
    if (taken == 0) return 0;
    outstanding_ += taken;
    Give(std::move(commands), taken_bytes);
    return taken;
  }

  std::vector<PublishResult> TakeResults() {
    std::vector<PublishResult> results;
    TakenResults taken;
    {
      const std::lock_guard<std::mutex> lock(shared_->mutex);
      shared_->notify_due = false;
      results.swap(shared_->results);
      taken.queues.swap(shared_->result_queues);
    }
    outstanding_ -= results.size();
    if (!results.empty()) {
      std::vector<Command> commands;
      commands.emplace_back(std::move(taken));
      Give(std::move(commands), 0);
    }
    return results;
  }

  std::size_t outstanding() const { return outstanding_; }

  void Cancel() {
    loop_->Post([this] { core_->Cancel(); });
  }

 private:
  void Give(std::vector<Command> commands, std::size_t bytes) {
    bool first = false;
    {
      const std::lock_guard<std::mutex> lock(shared_->mutex);
      shared_->outstanding_bytes += bytes;
      first = shared_->commands.empty();
      if (first) {
        shared_->commands.swap(commands);
      } else {
        std::move(commands.begin(), commands.end(), std::back_inserter(shared_->commands));
      }
    }
    if (first) loop_->Post([this] { core_->RunCommands(); });
  }

  const PublisherOptions options_;
  std::size_t outstanding_ = 0;  // the caller's thread only
  std::unique_ptr<Shared> shared_;
  std::unique_ptr<Core> core_;  // made and destroyed on the loop's thread
  std::unique_ptr<EventLoop> loop_;
};

Publisher::Publisher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Publisher::~Publisher() = default;

std::unique_ptr<Publisher> Publisher::Create(PublisherOptions options, std::string* error) {
  if (options.channels < 1) options.channels = 1;
  auto impl = std::make_unique<Impl>(std::move(options));
  if (!impl->Start(error)) return nullptr;
  return std::unique_ptr<Publisher>(new Publisher(std::move(impl)));
}

bool Publisher::Publish(Message&& message) { return impl_->Publish({&message, 1}) == 1; }
std::size_t Publisher::Publish(std::span<Message> messages) { return impl_->Publish(messages); }
std::vector<PublishResult> Publisher::TakeResults() { return impl_->TakeResults(); }
std::size_t Publisher::outstanding() const { return impl_->outstanding(); }
void Publisher::Cancel() { impl_->Cancel(); }

}  // namespace postbox::pubsub
