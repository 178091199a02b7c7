#include "worker/pubsub/publish_scheduler.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "worker/pubsub/error_class.h"
#include "worker/pubsub/limits.h"
#include "worker/pubsub/message_check.h"
#include "worker/pubsub/wire_size.h"

namespace postbox::pubsub {

namespace {

// How often messages that wait for a free request are looked through for passed deadlines.
constexpr std::chrono::seconds kSweepInterval(1);

// An attempt gets a third of the whole time, so that a connection which swallows a request costs one attempt and not the
// message; but enough for 10 MB on a slow line.
constexpr std::chrono::milliseconds kShortestAttemptTimeout = std::chrono::seconds(5);

constexpr char kNotSent[] = "CANCELLED: not sent, the publisher was told to stop";

std::string Seconds(std::chrono::milliseconds duration) {
  const auto count = duration.count();
  return count % 1000 == 0 ? std::to_string(count / 1000) + " s" : std::to_string(count) + " ms";
}

}  // namespace

std::size_t SizeOf(const Message& message) {
  return message.encoded.empty()
             ? MessageSize(message.data, message.attributes, message.ordering_key)
             : message.encoded.size();
}

OutgoingMessage PrepareMessage(Message&& message, std::chrono::steady_clock::time_point deadline) {
  OutgoingMessage outgoing;
  outgoing.size = SizeOf(message);
  outgoing.deadline = deadline;
  if (!message.encoded.empty()) {
    outgoing.message = std::move(message);
    return outgoing;
  }
  if (const auto problem = CheckMessage(message.data, message.attributes, message.ordering_key,
                                        message.topic.size())) {
    outgoing.problem = StatusText(kInvalidArgument, problem->Text());
  }
  outgoing.message = std::move(message);
  return outgoing;
}

class PublishScheduler::Queue {
 public:
  std::string name;  // its key in queues_
  std::string topic;
  bool keyed = false;
  int channel = 0;  // of a key
  int max_busy = 1;

  std::deque<Batch> front;  // cut or put back: goes before `waiting`
  std::deque<OutgoingMessage> waiting;
  int busy = 0;         // requests in flight or waiting for their next attempt
  bool ready = false;   // is in ready_
  bool failed = false;  // of a key: all that comes is kBehind
  bool cancelling =
      false;  // of a key: what waits is cancelled once the request in flight is answered
  std::size_t outstanding = 0;  // added and not taken yet

  bool CanSend() const { return busy < max_busy && (!front.empty() || !waiting.empty()); }
};

PublishScheduler::PublishScheduler(Options options, Host* host)
    : options_(options),
      attempt_timeout_(std::max(kShortestAttemptTimeout, options.publish_timeout / 3)),
      host_(host),
      last_sweep_(host->Now()) {}

PublishScheduler::~PublishScheduler() = default;

PublishScheduler::Queue* PublishScheduler::FindOrCreate(const std::string& topic,
                                                        const std::string& key) {
  std::string name;
  name.reserve(topic.size() + 1 + key.size());
  name.append(topic).push_back('\0');
  name.append(key);
  auto [at, inserted] = queues_.try_emplace(std::move(name));
  if (inserted) {
    at->second = std::make_unique<Queue>();
    Queue* queue = at->second.get();
    queue->name = at->first;
    queue->topic = topic;
    queue->keyed = !key.empty();
    if (queue->keyed) {
      queue->channel = next_channel_++ % options_.channels;
    } else {
      queue->max_busy = options_.keyless_requests_per_channel * options_.channels;
    }
  }
  return at->second.get();
}

void PublishScheduler::MaybeErase(Queue* queue) {
  if (queue->outstanding == 0 && !queue->ready) queues_.erase(std::string(queue->name));
}

void PublishScheduler::MarkReady(Queue* queue) {
  if (queue->ready || !queue->CanSend()) return;
  queue->ready = true;
  ready_.push_back(queue);
}

void PublishScheduler::Add(OutgoingMessage&& message) {
  Queue* queue = FindOrCreate(message.message.topic, message.message.ordering_key);
  ++queue->outstanding;
  if (queue->failed) {
    Deliver(queue, message, PublishStatus::kBehind,
            "an earlier message of its key was not published");
    return;
  }
  if (!queue->keyed && !message.problem.empty()) {
    Deliver(queue, message, PublishStatus::kRejected, message.problem);
    return;
  }
  queue->waiting.push_back(std::move(message));
  MarkReady(queue);
}

void PublishScheduler::Pump() {
  const auto limit = static_cast<std::size_t>(options_.requests_per_channel) *
                     static_cast<std::size_t>(options_.channels);
  while (!ready_.empty() && in_flight_.size() < limit) {
    Queue* queue = ready_.front();
    ready_.pop_front();
    queue->ready = false;
    SendNext(queue);
    MarkReady(queue);
    MaybeErase(queue);
  }
}

// Moves the next request of the queue into `batch`; false if there is none. A message that breaks a limit ends a batch
// and is rejected when it is the first.
bool PublishScheduler::FillBatch(Queue* queue, Batch* batch) {
  if (!queue->front.empty()) {
    *batch = std::move(queue->front.front());
    queue->front.pop_front();
    return true;
  }
  batch->size = EmptyRequestSize(queue->topic.size());
  while (!queue->waiting.empty() && batch->messages.size() < kMaxRequestMessages) {
    OutgoingMessage& next = queue->waiting.front();
    if (!next.problem.empty()) {
      if (!batch->messages.empty()) break;
      const OutgoingMessage broken = std::move(next);
      queue->waiting.pop_front();
      Deliver(queue, broken, PublishStatus::kRejected, broken.problem);
      StopKey(queue, PublishStatus::kBehind, broken.problem);
      return false;
    }
    const std::size_t size = MessageSizeInRequest(next.size);
    if (!batch->messages.empty() && batch->size + size > kMaxRequestBytes) break;
    batch->size += size;
    batch->messages.push_back(std::move(next));
    queue->waiting.pop_front();
  }
  return !batch->messages.empty();
}

void PublishScheduler::SendNext(Queue* queue) {
  const TimePoint now = host_->Now();
  Expire(queue, now);
  Batch batch;
  if (!queue->CanSend() || !FillBatch(queue, &batch)) return;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(batch.deadline() - now);
  if (!queue->keyed) queue->channel = next_channel_++ % options_.channels;
  ++queue->busy;
  const std::uint64_t id = ++last_request_;
  const InFlight& sent = in_flight_.emplace(id, InFlight{queue, std::move(batch)}).first->second;
  host_->Send(Request{id, queue->channel, queue->topic, sent.batch.messages, sent.batch.size,
                      std::min(left, attempt_timeout_)});
}

void PublishScheduler::OnResponse(std::uint64_t request_id, Response response) {
  const auto at = in_flight_.find(request_id);
  if (at == in_flight_.end()) return;
  Queue* queue = at->second.queue;
  Batch batch = std::move(at->second.batch);
  in_flight_.erase(at);
  --queue->busy;

  if (response.code == kOk && response.message_ids.size() == batch.messages.size()) {
    for (std::size_t i = 0; i < batch.messages.size(); ++i) {
      Deliver(queue, batch.messages[i], PublishStatus::kPublished, "",
              std::move(response.message_ids[i]));
    }
    if (queue->cancelling) StopKey(queue, PublishStatus::kUnknown, kNotSent);
  } else if (response.code == kOk) {
    const std::string error =
        StatusText(kInternal, "the broker answered " + std::to_string(response.message_ids.size()) +
                                  " message ids to a request of " +
                                  std::to_string(batch.messages.size()) + " messages");
    Fail(queue, std::move(batch), PublishStatus::kUnknown, error);
  } else {
    const std::string error = StatusText(response.code, response.message);
    switch (ClassifyPublishError(response.code, response.message)) {
      case PublishErrorClass::kEventBroken:
        if (batch.messages.size() == 1) {
          Fail(queue, std::move(batch), PublishStatus::kRejected, error);
        } else if (batch.cancelled) {
          Fail(queue, std::move(batch), PublishStatus::kUnknown, kNotSent);
        } else {
          Bisect(queue, std::move(batch));
        }
        break;
      case PublishErrorClass::kTopicBroken:
        Fail(queue, std::move(batch), PublishStatus::kTopicBroken, error);
        break;
      case PublishErrorClass::kRetry:
        if (batch.cancelled) {
          Fail(queue, std::move(batch), PublishStatus::kUnknown, error);
        } else {
          RetryLater(queue, std::move(batch), response);
        }
        break;
    }
  }
  MarkReady(queue);
  Pump();
}

void PublishScheduler::RetryLater(Queue* queue, Batch batch, const Response& response) {
  ++batch.attempts;
  batch.last_error = StatusText(response.code, response.message);
  const TimePoint next =
      host_->Now() + BackoffDelay(options_.backoff, batch.attempts, host_->Random());
  if (next >= batch.deadline()) {
    const std::string error = GaveUp(batch);
    Fail(queue, std::move(batch), PublishStatus::kUnknown, error);
    return;
  }
  ++queue->busy;  // nothing of the key overtakes it
  delayed_.emplace(next, InFlight{queue, std::move(batch)});
}

void PublishScheduler::Bisect(Queue* queue, Batch batch) {
  const auto middle =
      batch.messages.begin() + static_cast<std::ptrdiff_t>(batch.messages.size() / 2);
  Batch halves[2];
  halves[0].messages.assign(std::make_move_iterator(batch.messages.begin()),
                            std::make_move_iterator(middle));
  halves[1].messages.assign(std::make_move_iterator(middle),
                            std::make_move_iterator(batch.messages.end()));
  for (Batch& half : halves) {
    half.size = EmptyRequestSize(queue->topic.size());
    for (const OutgoingMessage& message : half.messages)
      half.size += MessageSizeInRequest(message.size);
  }
  queue->front.push_front(std::move(halves[1]));
  queue->front.push_front(std::move(halves[0]));
}

void PublishScheduler::Fail(Queue* queue, Batch batch, PublishStatus status,
                            const std::string& error) {
  for (const OutgoingMessage& message : batch.messages) Deliver(queue, message, status, error);
  if (!queue->keyed) return;
  queue->failed = true;
  if (queue->cancelling) {
    StopKey(queue, PublishStatus::kUnknown, kNotSent);
  } else {
    StopKey(queue, PublishStatus::kBehind, error);
  }
}

// Ends all that a key has not sent yet.
void PublishScheduler::StopKey(Queue* queue, PublishStatus status, const std::string& error) {
  const std::string text = status == PublishStatus::kBehind
                               ? "an earlier message of its key was not published: " + error
                               : error;
  for (const Batch& batch : queue->front) {
    for (const OutgoingMessage& message : batch.messages) Deliver(queue, message, status, text);
  }
  for (const OutgoingMessage& message : queue->waiting) Deliver(queue, message, status, text);
  // Nothing is behind a cancel that found everything published.
  if (queue->keyed &&
      (!queue->front.empty() || !queue->waiting.empty() || status == PublishStatus::kBehind)) {
    queue->failed = true;
  }
  queue->cancelling = false;
  queue->front.clear();
  queue->waiting.clear();
}

// Ends what has passed its deadline without a request of its own to say so.
void PublishScheduler::Expire(Queue* queue, TimePoint now) {
  while (!queue->front.empty() && queue->front.front().deadline() <= now) {
    Batch batch = std::move(queue->front.front());
    queue->front.pop_front();
    const std::string error = GaveUp(batch);
    Fail(queue, std::move(batch), PublishStatus::kUnknown, error);
  }
  while (queue->front.empty() && !queue->waiting.empty() &&
         queue->waiting.front().deadline <= now) {
    Batch batch;
    batch.messages.push_back(std::move(queue->waiting.front()));
    queue->waiting.pop_front();
    const std::string error = GaveUp(batch);
    Fail(queue, std::move(batch), PublishStatus::kUnknown, error);
  }
}

std::string PublishScheduler::GaveUp(const Batch& batch) const {
  if (batch.attempts == 0) {
    return StatusText(kDeadlineExceeded,
                      "not sent within " + Seconds(options_.publish_timeout) +
                          ", the broker takes messages more slowly than they come");
  }
  return batch.last_error + " (gave up after " + std::to_string(batch.attempts) +
         (batch.attempts == 1 ? " attempt" : " attempts") + ", publish timeout " +
         Seconds(options_.publish_timeout) + ")";
}

void PublishScheduler::Deliver(Queue* queue, const OutgoingMessage& message, PublishStatus status,
                               std::string error, std::string message_id) {
  PublishResult result;
  result.tag = message.message.tag;
  result.status = status;
  result.error = std::move(error);
  result.message_id = std::move(message_id);
  host_->Deliver(std::move(result), MessageSizeInRequest(message.size), queue);
}

void PublishScheduler::Taken(Queue* queue) {
  --queue->outstanding;
  MaybeErase(queue);
}

std::optional<PublishScheduler::TimePoint> PublishScheduler::NextWake() const {
  std::optional<TimePoint> wake;
  if (!delayed_.empty()) wake = delayed_.begin()->first;
  if (!ready_.empty() && (!wake || last_sweep_ + kSweepInterval < *wake))
    wake = last_sweep_ + kSweepInterval;
  return wake;
}

void PublishScheduler::OnTime() {
  const TimePoint now = host_->Now();
  while (!delayed_.empty() && delayed_.begin()->first <= now) {
    Queue* queue = delayed_.begin()->second.queue;
    queue->front.push_front(std::move(delayed_.begin()->second.batch));
    delayed_.erase(delayed_.begin());
    --queue->busy;
    MarkReady(queue);
  }
  if (now >= last_sweep_ + kSweepInterval) {
    last_sweep_ = now;
    for (Queue* queue : ready_) Expire(queue, now);
  }
  Pump();
}

void PublishScheduler::Cancel() {
  for (auto& [time, delayed] : delayed_) {
    --delayed.queue->busy;
    const std::string error = delayed.batch.last_error + " (cancelled after " +
                              std::to_string(delayed.batch.attempts) + " attempts)";
    delayed.queue->cancelling = delayed.queue->keyed;
    Fail(delayed.queue, std::move(delayed.batch), PublishStatus::kUnknown, error);
  }
  delayed_.clear();
  for (auto& [name, queue] : queues_) {
    if (queue->keyed && queue->busy > 0) {
      queue->cancelling = true;
    } else {
      StopKey(queue.get(), PublishStatus::kUnknown, kNotSent);
    }
  }
  for (Queue* queue : std::exchange(ready_, {})) {
    queue->ready = false;
    MaybeErase(queue);
  }
  for (auto& [id, sent] : in_flight_) {
    sent.batch.cancelled = true;
    host_->Abort(id);
  }
}

}  // namespace postbox::pubsub
