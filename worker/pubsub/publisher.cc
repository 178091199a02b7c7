// Ties the scheduler (what is sent when) to the transport (gRPC) on the loop's thread, and that
// thread to the caller's.
//
// Between the threads lie two lists under one mutex. Commands go in, in the caller's order:
// messages, or "these results were taken". That order decides whether a message comes before or
// after the caller knew of a failure of its key. Results come out; the eventfd is written when the
// list stops being empty. While many requests are in flight, answers come close together, and
// waking the caller for each would cost more than the answer: then it is written a moment later, or
// as soon as there are enough.

#include "worker/pubsub/publisher.h"

#include <sys/eventfd.h>

#include <mutex>
#include <utility>
#include <variant>

#include "proto/rules/wire_size.h"
#include "worker/pubsub/channel.h"
#include "worker/pubsub/credentials.h"
#include "worker/pubsub/event_loop.h"
#include "worker/pubsub/publish_scheduler.h"
#include "worker/pubsub/publish_transport.h"

namespace postbox::pubsub {

namespace {

using Queue = PublishScheduler::Queue;

// So many results in a row of one queue.
struct ResultsOf {
  Queue* queue;
  std::size_t count;
};
using Messages = std::vector<OutgoingMessage*>;
using TakenResults = std::vector<ResultsOf>;
using Command = std::variant<Messages, TakenResults>;

// What both threads share.
struct Shared {
  std::mutex mutex;
  std::vector<Command> commands;
  bool posted = false;  // the loop is going to carry them out
  Messages results;
  TakenResults queues;          // of the results
  bool notify_due = false;      // there are results that the eventfd has not told of
  std::size_t outstanding = 0;  // messages given and not taken back
  std::size_t outstanding_bytes = 0;
  int notify_fd = -1;

  // Under the mutex.
  void Notify() {
    notify_due = false;
    // Only a counter near its 64-bit limit makes it fail, and then the descriptor is readable
    // anyway.
    if (notify_fd >= 0) static_cast<void>(eventfd_write(notify_fd, 1));
  }
};

std::size_t SizeInRequest(const OutgoingMessage& message) {
  return MessageSizeInRequest(message.encoded.size());
}

// The caller's thread has just written the messages: they are not in this one's caches.
void Prefetch(const Messages& messages, std::size_t from) {
  constexpr std::size_t kLine = 64;
  if (from >= messages.size()) return;
  const char* const begin = reinterpret_cast<const char*>(messages[from]);
  for (std::size_t at = 0; at < sizeof(OutgoingMessage); at += kLine)
    __builtin_prefetch(begin + at);
}
constexpr std::size_t kPrefetch = 8;  // messages ahead

// The eventfd is written at once while no more requests than this are in flight.
constexpr std::size_t kFewRequests = 8;
// Else when the results of this part of the messages wait, or so much later.
constexpr std::size_t kNotifyPart = 4;
constexpr std::chrono::milliseconds kNotifyDelay(10);

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
      shared_->posted = false;
    }
    for (const Command& command : commands) {
      if (const auto* messages = std::get_if<Messages>(&command)) {
        for (std::size_t i = 0; i < messages->size(); ++i) {
          Prefetch(*messages, i + kPrefetch);
          scheduler_.Add((*messages)[i]);
        }
      } else {
        const auto& taken = std::get<TakenResults>(command);
        for (std::size_t i = 0; i < taken.size(); ++i) {
          if (i + kPrefetch < taken.size()) __builtin_prefetch(taken[i + kPrefetch].queue);
          scheduler_.Taken(taken[i].queue, taken[i].count);
        }
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
  void Deliver(OutgoingMessage* message, Queue* queue) override {
    results_.push_back(message);
    result_bytes_ += SizeInRequest(*message);
    if (queues_.empty() || queues_.back().queue != queue) queues_.push_back({queue, 0});
    ++queues_.back().count;
  }

  // After every event: hands the results over, and sets the timer for what the scheduler waits for.
  void Settle() {
    if (!results_.empty()) {
      const std::lock_guard<std::mutex> lock(shared_->mutex);
      shared_->outstanding_bytes -= result_bytes_;
      result_bytes_ = 0;
      if (shared_->results.empty()) shared_->notify_due = true;
      shared_->results.insert(shared_->results.end(), results_.begin(), results_.end());
      shared_->queues.insert(shared_->queues.end(), queues_.begin(), queues_.end());
      results_.clear();
      queues_.clear();
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
        shared_->results.size() * kNotifyPart >= shared_->outstanding) {
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
  Messages results_;
  TakenResults queues_;
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

  std::size_t Publish(std::span<OutgoingMessage* const> messages) {
    std::size_t outstanding = 0;
    std::size_t bytes = 0;
    {
      const std::lock_guard<std::mutex> lock(shared_->mutex);
      outstanding = shared_->outstanding;
      bytes = shared_->outstanding_bytes;
    }
    // The other thread only makes the bytes less.
    std::size_t taken_bytes = 0;
    std::size_t taken = 0;
    const auto deadline = std::chrono::steady_clock::now() + options_.publish_timeout;
    for (OutgoingMessage* message : messages) {
      const std::size_t size = SizeInRequest(*message);
      const std::size_t before = outstanding + taken;
      if (before > 0 && (before >= options_.max_outstanding_messages ||
                         bytes + taken_bytes + size > options_.max_outstanding_bytes)) {
        break;
      }
      taken_bytes += size;
      message->deadline = deadline;
      ++taken;
    }
    if (taken == 0) return 0;
    const auto front = messages.first(taken);
    Give(Messages(front.begin(), front.end()), taken_bytes);
    return taken;
  }

  std::vector<OutgoingMessage*> TakeResults() {
    Messages results;
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->notify_due = false;
    if (shared_->results.empty()) return results;
    results.swap(shared_->results);
    shared_->outstanding -= results.size();
    // No reason to wake the loop: what is about to be handed over comes after it.
    shared_->commands.emplace_back(std::move(shared_->queues));
    shared_->queues.clear();
    return results;
  }

  std::size_t outstanding() const {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    return shared_->outstanding;
  }

  void Cancel() {
    loop_->Post([this] { core_->Cancel(); });
  }

 private:
  void Give(Messages messages, std::size_t bytes) {
    bool post = false;
    {
      const std::lock_guard<std::mutex> lock(shared_->mutex);
      shared_->outstanding += messages.size();
      shared_->outstanding_bytes += bytes;
      shared_->commands.emplace_back(std::move(messages));
      post = !std::exchange(shared_->posted, true);
    }
    if (post) loop_->Post([this] { core_->RunCommands(); });
  }

  const PublisherOptions options_;
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

std::size_t Publisher::Publish(std::span<OutgoingMessage* const> messages) {
  return impl_->Publish(messages);
}
std::vector<OutgoingMessage*> Publisher::TakeResults() { return impl_->TakeResults(); }
std::size_t Publisher::outstanding() const { return impl_->outstanding(); }
void Publisher::Cancel() { impl_->Cancel(); }

}  // namespace postbox::pubsub
