#include "worker/pubsub/publish_scheduler.h"

#include <algorithm>
#include <utility>

#include "proto/rules/error_class.h"
#include "proto/rules/limits.h"
#include "proto/rules/wire_size.h"
#include "worker/pubsub/prefetch.h"
#include "worker/pubsub/publish_scheduler_queue.h"

namespace postbox::pubsub {

namespace {

// How often the messages that wait for a free request are checked for expired deadlines.
constexpr std::chrono::seconds kSweepInterval(1);

// How often a retry that goes through ends the backoff of the others.
constexpr std::chrono::seconds kRetryNowInterval(1);

// An attempt gets a third of publish_timeout, so that a connection on which a request is lost costs
// one attempt and not the message. But it gets at least this long, which is enough for 10 MB on a
// slow line.
constexpr std::chrono::milliseconds kShortestAttemptTimeout = std::chrono::seconds(5);

// The longer the way, the more requests without a key may be on it that are not full: one more for
// each of these times. What waits for more messages holds up those that the caller could add.
constexpr std::chrono::milliseconds kKeylessPace(1);
constexpr int kMostMoreKeyless = 100;

constexpr char kNotSent[] = "CANCELLED: not sent, the publisher was told to stop";
constexpr char kNotSentInTime[] =
    "DEADLINE_EXCEEDED: not sent in time, the broker takes messages more slowly than they come";

// So often a request is sent again for what was not its fault.
constexpr int kMostExcused = 3;

std::string Seconds(std::chrono::milliseconds duration) {
  const auto count = duration.count();
  return count % 1000 == 0 ? std::to_string(count / 1000) + " s" : std::to_string(count) + " ms";
}

}  // namespace

PublishScheduler::PublishScheduler(Options options, Host* host)
    : options_(options),
      attempt_timeout_(std::max(kShortestAttemptTimeout, options.publish_timeout / 3)),
      host_(host),
      window_(options.least_requests, static_cast<std::size_t>(options.channels) *
                                          static_cast<std::size_t>(options.streams_per_channel)),
      channels_(options.channels, options.streams_per_channel),
      last_sweep_(host->Now()) {}

PublishScheduler::~PublishScheduler() = default;

PublishScheduler::Topic* PublishScheduler::FindTopic(std::string_view name) {
  // Most messages have the topic of the message before.
  if (last_topic_ != nullptr && last_topic_->name == name) return last_topic_;
  auto at = topics_.find(name);
  if (at == topics_.end()) {
    at = topics_.emplace(name, std::make_unique<Topic>(name)).first;
  }
  last_topic_ = at->second.get();
  return last_topic_;
}

int PublishScheduler::KeylessRequests() const {
  const auto base =
      std::chrono::duration_cast<std::chrono::milliseconds>(window_.base(host_->Now()));
  const auto more = std::min<std::int64_t>(base / kKeylessPace, kMostMoreKeyless);
  return options_.keyless_requests + static_cast<int>(more);
}

PublishScheduler::Queue* PublishScheduler::FindQueue(const OutgoingMessage& message) {
  Topic* topic = FindTopic(message.topic);
  const auto at = topic->queues.find(message.ordering_key);
  if (at != topic->queues.end()) return at->second.get();
  auto made = std::make_unique<Queue>();
  Queue* queue = made.get();
  queue->topic = topic;
  queue->key = message.ordering_key;
  if (!queue->keyed()) queue->max_busy = KeylessRequests();
  topic->queues.emplace(queue->key, std::move(made));
  return queue;
}

void PublishScheduler::MaybeErase(Queue* queue) {
  if (queue->outstanding > 0 || queue->ready || queue->paused) return;
  auto& queues = queue->topic->queues;
  queues.erase(queues.find(queue->key));
}

void PublishScheduler::MarkReady(Queue* queue) {
  if (queue->ready || !queue->CanSend()) return;
  queue->ready = true;
  if (queue->topic->ready.empty()) ready_.push_back(queue->topic);
  queue->topic->ready.Push(queue);
}

void PublishScheduler::Add(OutgoingMessage* message) {
  Queue* queue = FindQueue(*message);
  ++queue->outstanding;
  if (queue->failed) {
    Deliver(queue, message, PublishStatus::kBehind,
            "an earlier message of its key was not published");
    return;
  }
  if (!queue->keyed() && message->status == PublishStatus::kRejected) {
    Deliver(queue, message, PublishStatus::kRejected, message->error);
    return;
  }
  queue->Wait(message);
  MarkReady(queue);
}

void PublishScheduler::Pump() {
  while (Topic* topic = NextTopic()) {
    Queue* queue = topic->ready.Pop();
    if (!topic->ready.empty()) ready_.push_back(topic);
    queue->ready = false;
    SendNext(queue);
    MarkReady(queue);
    MaybeErase(queue);
  }
}

std::chrono::milliseconds PublishScheduler::AttemptTimeout() const {
  return std::min(attempt_timeout_, options_.publish_timeout);
}

PublishScheduler::TimePoint PublishScheduler::Deadline(const Batch& batch) const {
  return batch.first_sent ? *batch.first_sent + options_.publish_timeout : batch.send_by;
}

// Moves the messages of the queue's next request into `batch`; false if there is none. A message
// that must not be sent ends the batch. If it would be the first of the batch, it is rejected.
bool PublishScheduler::FillBatch(Queue* queue, TimePoint now, Batch* batch) {
  while (!queue->again.empty()) {
    *batch = std::move(queue->again.back());
    queue->again.pop_back();
    if (batch->size <= queue->MostBytes() || batch->messages.size() == 1) return true;
    Bisect(queue, *batch);
  }
  const std::size_t most = std::min(queue->waiting.size() - queue->begin, kMaxRequestMessages);
  batch->size = EmptyRequestSize(queue->topic->name.size());
  batch->messages.reserve(most);
  while (batch->messages.size() < most) {
    const std::size_t at = queue->begin + batch->messages.size();
    PrefetchAhead(queue->waiting, at, kFetchAhead);
    OutgoingMessage* next = queue->waiting[at];
    if (next->status == PublishStatus::kRejected) break;
    const std::size_t size = MessageSizeInRequest(next->encoded.size());
    const bool too_large = batch->size + size > queue->MostBytes();
    if (!batch->messages.empty() && (too_large || next->send_by <= now)) break;
    batch->size += size;
    batch->send_by = std::min(batch->send_by, next->send_by);
    PrefetchText(next->encoded);  // copied when the request is sent
    batch->messages.push_back(next);
  }
  queue->DropFront(batch->messages.size());
  if (!batch->messages.empty()) return true;
  if (!queue->Waits()) return false;
  OutgoingMessage* broken = queue->PopFront();
  const std::string error = broken->error;
  Deliver(queue, broken, PublishStatus::kRejected, error);
  StopKey(queue, PublishStatus::kBehind, error);
  return false;
}

void PublishScheduler::SendNext(Queue* queue) {
  const TimePoint now = host_->Now();
  Expire(queue, now);
  Batch batch;
  const bool may_wait = !queue->IsUrgent() && MayWait(*queue->topic);
  if (!queue->CanSend() || !FillBatch(queue, now, &batch)) return;
  if (batch.messages.front()->maybe_taken) {
    for (OutgoingMessage* message : batch.messages) ++message->sent_again;
  }
  const bool first = !batch.first_sent;
  if (first) batch.first_sent = now;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(Deadline(batch) - now);
  const std::uint64_t id = ++last_request_;
  const auto place = channels_.Take(id, queue->keyed() ? queue->channel : -1, batch.size,
                                    window_.limit(), may_wait, now);
  queue->channel = place.channel;
  ++queue->busy;
  ++queue->topic->in_flight;
  InFlight request{queue, std::move(batch), place.channel, channels_.connected(place.channel)};
  const auto timeout = std::min(left, attempt_timeout_);
  request.until = now + timeout;
  if (streams_ >= window_.limit()) window_.Limited();
  if (place.has_stream) {
    Begin(&request);
  } else {
    request.has_stream = false;
    request.waited = true;
    request.first = first;
    ++queue->topic->waiting;
  }
  const InFlight& sent = in_flight_.emplace(id, std::move(request)).first->second;
  host_->Send(Request{id, queue->channel, queue->topic->name, sent.batch.messages, sent.batch.size,
                      timeout});
}

void PublishScheduler::OnResponse(std::uint64_t request_id, Response response) {
  const auto at = in_flight_.find(request_id);
  if (at == in_flight_.end()) return;
  InFlight request = std::move(at->second);
  in_flight_.erase(at);
  Leave(request_id, request, response.code == kOk);
  Queue* queue = request.queue;
  Batch batch = std::move(request.batch);
  --queue->busy;
  --queue->topic->in_flight;

  const bool published = response.code == kOk && response.message_ids == batch.messages.size();
  if (!published && MaybeTaken(request, response)) {
    for (OutgoingMessage* message : batch.messages) message->maybe_taken = true;
  }

  if (published) {
    Published(queue, batch);
  } else if (response.code == kOk) {
    const std::string error =
        StatusText(kInternal, response.message_ids
                                  ? "the broker answered " + std::to_string(*response.message_ids) +
                                        " message ids to a request of " +
                                        std::to_string(batch.messages.size()) + " messages"
                                  : std::string("the broker's answer cannot be read"));
    Answered(queue->topic);
    Fail(queue, batch, PublishStatus::kUnknown, error);
  } else if (IsExcused(request, response) && !batch.cancelled && host_->Now() < Deadline(batch) &&
             ++batch.excused <= kMostExcused) {
    batch.last_error = StatusText(response.code, response.message);
    queue->again.push_back(std::move(batch));
  } else {
    Failed(queue, std::move(batch), response);
  }
  if (!queue->keyed()) queue->max_busy = KeylessRequests();
  MarkReady(queue);
  Pump();
}

void PublishScheduler::Failed(Queue* queue, Batch batch, const Response& response) {
  const PublishErrorClass error_class = ClassifyPublishError(response.code, response.message);
  const bool exhausted = response.code == kResourceExhausted;
  if (exhausted || error_class != PublishErrorClass::kRetry) Answered(queue->topic);
  const std::string error = StatusText(response.code, response.message);
  switch (error_class) {
    case PublishErrorClass::kEventBroken:
      if (batch.messages.size() == 1) {
        Fail(queue, batch, PublishStatus::kRejected, error);
      } else if (batch.cancelled) {
        Fail(queue, batch, PublishStatus::kUnknown, kNotSent);
      } else {
        Bisect(queue, batch);
      }
      break;
    case PublishErrorClass::kTopicBroken:
      Fail(queue, batch, PublishStatus::kTopicBroken, error);
      break;
    case PublishErrorClass::kRetry:
      if (batch.cancelled) {
        Fail(queue, batch, PublishStatus::kUnknown, error);
      } else if (exhausted) {
        batch.last_error = error;
        SendSlower(queue, std::move(batch));
      } else {
        ++batch.attempts;
        batch.last_error = error;
        Retry(queue, std::move(batch));
      }
      break;
  }
}

void PublishScheduler::Answered(Topic* topic) {
  const TimePoint now = host_->Now();
  const bool was_down = topic->health.down();
  if (topic->health.failing_since()) host_->TopicAnswers(topic->name);
  topic->health.Answered(now);
  if (was_down) RetryNow(topic, now);
}

void PublishScheduler::Published(Queue* queue, const Batch& batch) {
  Answered(queue->topic);
  if (batch.attempts > 0) {
    const TimePoint now = host_->Now();
    if (now >= queue->topic->retried_at + kRetryNowInterval) RetryNow(queue->topic, now);
  }
  if (queue->pace) {
    queue->pace->Taken(batch.size);
    if (queue->pace->over()) {
      queue->pace.reset();
    } else {
      Pause(queue);
    }
  }
  for (std::size_t i = 0; i < batch.messages.size(); ++i) {
    PrefetchAhead(batch.messages, i, kFetchAhead);
    batch.messages[i]->status = PublishStatus::kPublished;
    host_->Deliver(batch.messages[i], queue);
  }
  if (queue->cancelling) StopKey(queue, PublishStatus::kUnknown, kNotSent);
}

// Errors that may pass.

void PublishScheduler::Retry(Queue* queue, Batch batch) {
  const TimePoint now = host_->Now();
  Topic* topic = queue->topic;
  topic->health.Failed(now, options_.publish_timeout, host_->Random());
  const std::string error = batch.last_error;
  TimePoint next_try = topic->health.next_probe();
  if (!topic->health.down()) {
    next_try = RetryLater(queue, std::move(batch));
  } else if (now >= Deadline(batch)) {
    End(queue, batch);
  } else {
    queue->again.push_back(std::move(batch));
  }
  host_->TopicFails(topic->name, *topic->health.failing_since(), next_try, error);
  if (topic->health.GiveUp(now)) GiveUp(topic, error);
}

PublishScheduler::TimePoint PublishScheduler::RetryLater(Queue* queue, Batch batch) {
  const TimePoint next =
      host_->Now() + BackoffDelay(options_.backoff, batch.attempts, host_->Random());
  if (next >= Deadline(batch)) {
    End(queue, batch);
    return next;
  }
  ++queue->busy;  // so that no message of the key overtakes it
  delayed_.emplace(next, InFlight{queue, std::move(batch)});
  return next;
}

void PublishScheduler::RetryNow(Topic* topic, TimePoint now) {
  topic->retried_at = now;
  for (auto at = delayed_.begin(); at != delayed_.end();) {
    Queue* queue = at->second.queue;
    if (queue->topic != topic) {
      ++at;
      continue;
    }
    queue->again.push_back(std::move(at->second.batch));
    at = delayed_.erase(at);
    --queue->busy;
    MarkReady(queue);
  }
}

void PublishScheduler::GiveUp(Topic* topic, const std::string& error) {
  for (auto at = delayed_.begin(); at != delayed_.end();) {
    Queue* queue = at->second.queue;
    if (queue->topic != topic) {
      ++at;
      continue;
    }
    const Batch batch = std::move(at->second.batch);
    at = delayed_.erase(at);
    --queue->busy;
    Fail(queue, batch, PublishStatus::kUnreachable, GaveUp(batch));
  }
  for (auto& [key, queue] : topic->queues) {
    // What is in flight ends with its answer, and then what is behind it: in their order.
    if (queue->keyed() && queue->busy > 0) continue;
    StopKey(queue.get(), PublishStatus::kUnreachable, error);
  }
  std::erase(ready_, topic);
  for (Queue* queue : topic->ready.TakeAll()) {
    queue->ready = false;
    MaybeErase(queue);
  }
}

void PublishScheduler::SendSlower(Queue* queue, Batch batch) {
  batch.first_sent.reset();  // none of it was taken, so it is not unknown
  if (!queue->pace) queue->pace.emplace();
  queue->pace->Refused(batch.size);
  queue->again.push_back(std::move(batch));
  Pause(queue);
}

void PublishScheduler::Pause(Queue* queue) {
  if (std::exchange(queue->paused, true)) return;
  paused_.emplace(host_->Now() + queue->pace->pause(), queue);
}

void PublishScheduler::Bisect(Queue* queue, const Batch& batch) {
  const auto middle =
      batch.messages.begin() + static_cast<std::ptrdiff_t>(batch.messages.size() / 2);
  Batch halves[2];
  halves[0].messages.assign(batch.messages.begin(), middle);
  halves[1].messages.assign(middle, batch.messages.end());
  for (Batch& half : halves) {
    half.send_by = batch.send_by;
    half.first_sent = batch.first_sent;
    half.tried_at = batch.tried_at;
    half.last_error = batch.last_error;
    half.size = EmptyRequestSize(queue->topic->name.size());
    for (const OutgoingMessage* message : half.messages) {
      half.size += MessageSizeInRequest(message->encoded.size());
    }
  }
  queue->again.push_back(std::move(halves[1]));
  queue->again.push_back(std::move(halves[0]));
}

void PublishScheduler::Fail(Queue* queue, const Batch& batch, PublishStatus status,
                            const std::string& error) {
  for (OutgoingMessage* message : batch.messages) Deliver(queue, message, status, error);
  if (!queue->keyed()) return;
  queue->failed = true;
  if (queue->cancelling) {
    StopKey(queue, PublishStatus::kUnknown, kNotSent);
  } else {
    StopKey(queue, PublishStatus::kBehind, error);
  }
}

// Gives all messages of a key that are not sent yet this result.
void PublishScheduler::StopKey(Queue* queue, PublishStatus status, const std::string& error) {
  const std::string text = status == PublishStatus::kBehind
                               ? "an earlier message of its key was not published: " + error
                               : error;
  // A cancel that finds no message waiting does not stop the key.
  if (queue->keyed() &&
      (!queue->again.empty() || queue->Waits() || status == PublishStatus::kBehind)) {
    queue->failed = true;
  }
  for (auto batch = queue->again.rbegin(); batch != queue->again.rend(); ++batch) {
    for (OutgoingMessage* message : batch->messages) Deliver(queue, message, status, text);
  }
  while (queue->Waits()) Deliver(queue, queue->PopFront(), status, text);
  queue->cancelling = false;
  queue->again.clear();
}

// Ends the waiting messages whose deadline is over.
void PublishScheduler::Expire(Queue* queue, TimePoint now) {
  while (!queue->again.empty() && Deadline(queue->again.back()) <= now) {
    const Batch batch = std::move(queue->again.back());
    queue->again.pop_back();
    End(queue, batch);
  }
  while (queue->again.empty() && queue->Waits() && queue->waiting[queue->begin]->send_by <= now) {
    Batch batch;
    batch.messages.push_back(queue->PopFront());
    End(queue, batch);
  }
}

void PublishScheduler::End(Queue* queue, const Batch& batch) {
  if (!batch.first_sent) {
    Fail(queue, batch, PublishStatus::kBehind, kNotSentInTime);
  } else if (batch.tried_at &&
             queue->topic->health.AnswersOthers(*batch.first_sent, *batch.tried_at)) {
    Fail(queue, batch, PublishStatus::kUnknown, GaveUp(batch));
  } else {
    Fail(queue, batch, PublishStatus::kUnreachable, GaveUp(batch));
  }
}

std::string PublishScheduler::GaveUp(const Batch& batch) const {
  return batch.last_error + " (gave up after " + std::to_string(batch.attempts) +
         (batch.attempts == 1 ? " attempt" : " attempts") + ", publish timeout " +
         Seconds(options_.publish_timeout) + ")";
}

void PublishScheduler::Deliver(Queue* queue, OutgoingMessage* message, PublishStatus status,
                               const std::string& error) {
  message->status = status;
  message->error = error;
  host_->Deliver(message, queue);
}

void PublishScheduler::Taken(Queue* queue, std::size_t messages) {
  queue->outstanding -= messages;
  MaybeErase(queue);
}

std::optional<PublishScheduler::TimePoint> PublishScheduler::NextWake() const {
  std::optional<TimePoint> wake;
  const auto by = [&wake](TimePoint time) { wake = wake ? std::min(*wake, time) : time; };
  if (!delayed_.empty()) by(delayed_.begin()->first);
  if (!paused_.empty()) by(paused_.begin()->first);
  if (!ready_.empty()) {
    by(last_sweep_ + kSweepInterval);
    if (const auto window_at = window_.NextTime()) by(*window_at);
  }
  if (const auto close_at = channels_.close_at()) by(*close_at);
  for (const Topic* topic : ready_) {
    // One whose time has come waits for a free request.
    if (topic->health.down() && topic->in_flight == 0 && !MaySend(*topic)) {
      by(topic->health.next_probe());
    }
  }
  return wake;
}

void PublishScheduler::OnTime() {
  const TimePoint now = host_->Now();
  while (!delayed_.empty() && delayed_.begin()->first <= now) {
    Queue* queue = delayed_.begin()->second.queue;
    queue->again.push_back(std::move(delayed_.begin()->second.batch));
    delayed_.erase(delayed_.begin());
    --queue->busy;
    MarkReady(queue);
  }
  while (!paused_.empty() && paused_.begin()->first <= now) {
    Queue* queue = paused_.begin()->second;
    paused_.erase(paused_.begin());
    queue->paused = false;
    MarkReady(queue);
    MaybeErase(queue);
  }
  if (now >= last_sweep_ + kSweepInterval) {
    last_sweep_ = now;
    for (Topic* topic : ready_) {
      for (Queue* queue : topic->ready.All()) Expire(queue, now);
    }
  }
  for (const int channel : channels_.CloseUnused(now)) host_->CloseChannel(channel);
  window_.OnTime(now);
  Pump();
}

void PublishScheduler::Cancel() {
  for (auto& [time, delayed] : delayed_) {
    --delayed.queue->busy;
    const std::string error = delayed.batch.last_error + " (cancelled after " +
                              std::to_string(delayed.batch.attempts) + " attempts)";
    delayed.queue->cancelling = delayed.queue->keyed();
    Fail(delayed.queue, delayed.batch, PublishStatus::kUnknown, error);
  }
  delayed_.clear();
  for (auto& [name, topic] : topics_) {
    for (auto& [key, queue] : topic->queues) {
      if (queue->keyed() && queue->busy > 0) {
        queue->cancelling = true;
      } else {
        StopKey(queue.get(), PublishStatus::kUnknown, kNotSent);
      }
    }
  }
  for (auto& [time, queue] : std::exchange(paused_, {})) {
    queue->paused = false;
    MaybeErase(queue);
  }
  for (Topic* topic : std::exchange(ready_, {})) {
    for (Queue* queue : topic->ready.TakeAll()) {
      queue->ready = false;
      MaybeErase(queue);
    }
  }
  for (auto& [id, sent] : in_flight_) {
    sent.batch.cancelled = true;
    host_->Abort(id);
  }
}

}  // namespace postbox::pubsub
