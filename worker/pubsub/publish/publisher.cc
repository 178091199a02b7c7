// Connects the scheduler (which messages are sent when) with the transport (gRPC) on the loop's
// thread, and that thread with the caller's thread.
//
// The threads share two lists under one mutex. The caller adds commands: messages to publish, or
// "these results were taken". Their order decides whether a message was handed over before or after
// the caller knew of a failure of its key. The loop's thread adds results, and writes the eventfd
// when the list was empty. While many requests are in flight their answers come close together, and
// to wake the caller for each of them would cost more than the answer. Then the eventfd is written
// a little later, or as soon as there are enough results.

#include "worker/pubsub/publish/publisher.h"

#include <sys/eventfd.h>

#include <atomic>
#include <map>
#include <mutex>
#include <utility>
#include <variant>

#include "proto/rules/wire_size.h"
#include "worker/pubsub/auth/credentials.h"
#include "worker/pubsub/channel.h"
#include "worker/pubsub/event_loop.h"
#include "worker/pubsub/publish/prefetch.h"
#include "worker/pubsub/publish/publish_scheduler.h"
#include "worker/pubsub/publish/publish_transport.h"

namespace postbox::pubsub {

namespace {

// This many consecutive results belong to one queue.
struct ResultsOf {
  OutgoingQueue* queue;
  std::size_t count;
};
using Messages = std::vector<OutgoingMessage*>;
using TakenResults = std::vector<ResultsOf>;
using Command = std::variant<Messages, TakenResults>;

// The data that both threads share.
struct Shared {
  std::mutex mutex;
  std::vector<Command> commands;
  bool posted = false;  // RunCommands() is posted to the loop
  Messages results;
  TakenResults queues;          // to which the results belong
  bool notify_due = false;      // there are results for which the eventfd was not written
  std::size_t outstanding = 0;  // messages handed over whose results were not taken
  std::size_t outstanding_bytes = 0;
  int notify_fd = -1;
  std::map<std::string, FailingTopic> failing;  // by topic
  std::atomic<bool> any_fails = false;          // written under the mutex

  // Under the mutex.
  void Notify() {
    notify_due = false;
    // It fails only if the counter is near its 64-bit limit. Then the descriptor is readable
    // already.
    if (notify_fd >= 0) static_cast<void>(eventfd_write(notify_fd, 1));
  }
};

std::size_t SizeInRequest(const OutgoingMessage& message) {
  return MessageSizeInRequest(message.encoded.size());
}

// The eventfd is written at once if no more requests than this are in flight.
constexpr std::size_t kFewRequests = 8;
// Otherwise it is written when 1 / kNotifyPart of the outstanding messages have results, or after
// kNotifyDelay. If the client has nothing left to send, everything waits for the broker. Then it is
// kNotifySoon: the room of what was answered is needed for what comes next.
constexpr std::size_t kNotifyPart = 4;
constexpr std::chrono::milliseconds kNotifyDelay(10);
constexpr std::chrono::milliseconds kNotifySoon(1);

// The part of the publisher that lives on the loop's thread, constructor and destructor included.
class PublisherCore : public PublishHost {
 public:
  PublisherCore(EventLoop* loop, Shared* shared, const PublisherOptions& options,
                Credentials credentials)
      : loop_(loop),
        shared_(shared),
        transport_(loop, options, std::move(credentials),
                   [this](std::uint64_t id, PublishScheduler::Response response) {
                     scheduler_.OnResponse(id, std::move(response));
                     Settle();
                   }),
        scheduler_({.channels = options.channels,
                    .publish_timeout = options.publish_timeout,
                    .meters = options.meters},
                   this) {}

  // Carries out the commands that the caller's thread has added since the last time.
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
          PrefetchObjectAhead(*messages, i, kFetchFarAhead);
          scheduler_.Add((*messages)[i]);
        }
      } else {
        const auto& taken = std::get<TakenResults>(command);
        for (std::size_t i = 0; i < taken.size(); ++i) {
          if (i + kFetchFarAhead < taken.size()) PrefetchForRead(taken[i + kFetchFarAhead].queue);
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

  CredentialState Credential() const { return transport_.Credential(); }

  // Nothing is sent afterwards. The requests in flight end soon.
  void Close() {
    closed_ = true;
    Cancel();
    loop_->Cancel(timer_);
    loop_->Cancel(notify_timer_);
  }

 private:
  using TimePoint = PublishScheduler::TimePoint;

  TimePoint Now() override { return std::chrono::steady_clock::now(); }
  double Random() override { return JitterRandom(); }
  void Send(const PublishHost::Request& request) override { transport_.Send(request); }
  void Abort(std::uint64_t request_id) override { transport_.Abort(request_id); }
  void CloseChannel(int channel) override { transport_.CloseChannel(channel); }
  void Deliver(OutgoingMessage* message, OutgoingQueue* queue) override {
    results_.push_back(message);
    result_bytes_ += SizeInRequest(*message);
    if (queues_.empty() || queues_.back().queue != queue) queues_.push_back({queue, 0});
    ++queues_.back().count;
  }

  void TopicFails(const std::string& topic, TimePoint since, TimePoint next_try,
                  const std::string& error) override {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->failing[topic] = {topic, since, next_try, error};
    shared_->any_fails = true;
    shared_->Notify();
  }
  void TopicAnswers(const std::string& topic) override {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->failing.erase(topic);
    shared_->any_fails = !shared_->failing.empty();
    shared_->Notify();
  }

  // Called after every event. Passes the results to the caller's thread, and sets the timer for
  // OnTime().
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
    const auto delay = scheduler_.AnyWaits() ? kNotifyDelay : kNotifySoon;
    notify_timer_ = loop_->After(delay, [this] {
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
      // A call that has not ended although it was cancelled still refers to these.
      static_cast<void>(core_.release());
      static_cast<void>(shared_.release());
      static_cast<void>(loop_.release());
    }
  }

  bool Start(std::string* error) {
    loop_ = EventLoop::Start("postbox-publish", error);
    if (loop_ == nullptr) return false;
    loop_->Run([&] {
      auto credentials = MakeCredentials(options_.endpoint, options_.credential, error);
      if (!credentials) return;
      core_ = std::make_unique<PublisherCore>(loop_.get(), shared_.get(), options_,
                                              std::move(*credentials));
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
    // The other thread can only make the bytes less meanwhile.
    std::size_t taken_bytes = 0;
    std::size_t taken = 0;
    for (OutgoingMessage* message : messages) {
      const std::size_t size = SizeInRequest(*message);
      const std::size_t before = outstanding + taken;
      if (before > 0 && (before >= options_.max_outstanding_messages ||
                         bytes + taken_bytes + size > options_.max_outstanding_bytes)) {
        break;
      }
      taken_bytes += size;
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
    // The loop is not woken for it. It is enough that the command comes before the messages that
    // the caller hands over next.
    shared_->commands.emplace_back(std::move(shared_->queues));
    shared_->queues.clear();
    return results;
  }

  std::size_t outstanding() const {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    return shared_->outstanding;
  }

  std::vector<FailingTopic> FailingTopics() const {
    std::vector<FailingTopic> topics;
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    for (const auto& [name, topic] : shared_->failing) topics.push_back(topic);
    return topics;
  }
  bool AnyFails() const { return shared_->any_fails; }
  CredentialState Credential() const { return core_->Credential(); }

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
  std::unique_ptr<PublisherCore> core_;  // made and destroyed on the loop's thread
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
std::vector<FailingTopic> Publisher::FailingTopics() const { return impl_->FailingTopics(); }
bool Publisher::AnyFails() const { return impl_->AnyFails(); }
CredentialState Publisher::Credential() const { return impl_->Credential(); }
void Publisher::Cancel() { impl_->Cancel(); }

}  // namespace postbox::pubsub
