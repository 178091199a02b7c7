#include "worker/pubsub/publish/publish_scheduler.h"

#include <algorithm>
#include <utility>

#include "proto/rules/error_class.h"

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

// So often a request is sent again for what was not its fault.
constexpr int kMostExcused = 3;

std::string InvalidAnswer(std::optional<std::size_t> message_ids, std::size_t messages) {
  return StatusText(kInternal, message_ids ? "the broker answered " + std::to_string(*message_ids) +
                                                 " message ids to a request of " +
                                                 std::to_string(messages) + " messages"
                                           : std::string("the broker's answer cannot be read"));
}

}  // namespace

PublishScheduler::PublishScheduler(const Options& options, PublishHost* host)
    : options_(options),
      attempt_timeout_(std::min(std::max(kShortestAttemptTimeout, options.publish_timeout / 3),
                                options.publish_timeout)),
      metering_(options.meters),
      host_(host),
      sent_({.channels = options.channels,
             .streams_per_channel = options.streams_per_channel,
             .least_requests = options.least_requests,
             .attempt_timeout = attempt_timeout_}),
      results_(host, &metering_, options.publish_timeout),
      last_sweep_(host->Now()) {}

int PublishScheduler::KeylessRequests(TimePoint now) const {
  const auto base = std::chrono::duration_cast<std::chrono::milliseconds>(sent_.window().base(now));
  const auto more = std::min<std::int64_t>(base / kKeylessPace, kMostMoreKeyless);
  return options_.keyless_requests + static_cast<int>(more);
}

void PublishScheduler::Add(OutgoingMessage* message) {
  OutgoingQueue* queue = turns_.Find(message->topic)->FindQueue(message->ordering_key);
  // That of a new queue, and after that with each answer.
  if (queue->outstanding++ == 0 && !queue->keyed()) {
    queue->max_busy = KeylessRequests(host_->Now());
  }
  if (results_.RefuseAdded(queue, message)) return;
  queue->Add(message);
  turns_.MarkReady(queue);
}

void PublishScheduler::Taken(OutgoingQueue* queue, std::size_t messages) {
  queue->outstanding -= messages;
  queue->topic->EraseIfUnused(queue);
}

void PublishScheduler::Pump() {
  while (AnyWaits()) {
    const TimePoint now = host_->Now();
    OutgoingQueue* queue = turns_.Next(&sent_, now);
    if (queue == nullptr) return;
    SendNext(queue, now);
    turns_.MarkReady(queue);
    queue->topic->EraseIfUnused(queue);
  }
}

void PublishScheduler::SendNext(OutgoingQueue* queue, TimePoint now) {
  results_.Expire(queue, now);
  const bool may_wait = !queue->IsUrgent() && turns_.MayWait(*queue->topic, sent_);
  if (!queue->CanSend()) return;
  OutgoingBatch batch;
  if (!queue->TakeBatch(now, &batch)) {
    if (!queue->waiting.empty()) results_.RejectNext(queue);
    return;
  }
  if (batch.messages.front()->maybe_taken) {
    for (OutgoingMessage* message : batch.messages) ++message->sent_again;
  }
  const TimePoint deadline =
      batch.first_sent ? batch.Deadline(options_.publish_timeout) : now + options_.publish_timeout;
  const auto timeout =
      std::min(std::chrono::ceil<std::chrono::milliseconds>(deadline - now), attempt_timeout_);
  const auto [id, sent] = sent_.Add(queue, std::move(batch), may_wait, timeout, now);
  host_->Send(
      {id, queue->channel, queue->topic->name, sent.batch.messages, sent.batch.size, timeout});
}

void PublishScheduler::OnResponse(std::uint64_t request_id, Response response) {
  const TimePoint now = host_->Now();
  std::optional<SentRequest> request = sent_.Remove(request_id, response.code == kOk, now);
  if (!request) return;
  if (request->closes_channel) host_->CloseChannel(request->channel);
  OutgoingQueue* queue = request->queue;
  OutgoingBatch& batch = request->batch;

  const bool published = response.code == kOk && response.message_ids == batch.messages.size();
  if (!published && request->MaybeTaken(response.code, response.message)) {
    for (OutgoingMessage* message : batch.messages) message->maybe_taken = true;
  }
  batch.last_code = published || response.code != kOk ? response.code : static_cast<int>(kInternal);
  metering_.Answered(*request, batch.last_code,
                     response.begun && request->HasLeft(response.code, response.message), now);

  if (published) {
    Published(queue, batch, now);
  } else if (response.code == kOk) {
    Answered(queue->topic, now);
    results_.Fail(queue, batch, PublishStatus::kUnknown,
                  InvalidAnswer(response.message_ids, batch.messages.size()));
  } else if (request->IsExcused(response.code, response.message) && !batch.cancelled &&
             now < batch.Deadline(options_.publish_timeout) && ++batch.excused <= kMostExcused) {
    batch.last_error = StatusText(response.code, response.message);
    queue->again.push_back(std::move(batch));
  } else {
    Failed(queue, std::move(batch), response, now);
  }
  if (!queue->keyed()) queue->max_busy = KeylessRequests(now);
  turns_.MarkReady(queue);
  Pump();
}

void PublishScheduler::Published(OutgoingQueue* queue, const OutgoingBatch& batch, TimePoint now) {
  Answered(queue->topic, now);
  if (batch.attempts > 0 && now >= queue->topic->retried_at + kRetryNowInterval) {
    RetryNow(queue->topic, now);
  }
  if (queue->pace) {
    queue->pace->Taken(batch.size);
    if (queue->pace->over()) {
      queue->pace.reset();
    } else {
      delays_.Pause(queue, now);
    }
  }
  results_.Published(queue, batch, now);
}

void PublishScheduler::Failed(OutgoingQueue* queue, OutgoingBatch batch, const Response& response,
                              TimePoint now) {
  const PublishErrorClass error_class = ClassifyPublishError(response.code, response.message);
  const bool exhausted = response.code == kResourceExhausted;
  if (exhausted || error_class != PublishErrorClass::kRetry) Answered(queue->topic, now);
  const std::string error = StatusText(response.code, response.message);
  switch (error_class) {
    case PublishErrorClass::kEventBroken:
      if (batch.messages.size() == 1) {
        results_.Fail(queue, batch, PublishStatus::kRejected, error);
      } else if (batch.cancelled) {
        results_.Fail(queue, batch, PublishStatus::kUnknown, PublishResults::kNotSent);
      } else {
        queue->PutBackInHalves(batch);
      }
      break;
    case PublishErrorClass::kTopicBroken:
      results_.Fail(queue, batch, PublishStatus::kTopicBroken, error);
      break;
    case PublishErrorClass::kRetry:
      if (batch.cancelled) {
        results_.Fail(queue, batch, PublishStatus::kUnknown, error);
      } else if (exhausted) {
        batch.last_error = error;
        SendSlower(queue, std::move(batch), now);
      } else {
        ++batch.attempts;
        batch.last_error = error;
        Retry(queue, std::move(batch), now);
      }
      break;
  }
}

// Errors that may pass.

void PublishScheduler::Retry(OutgoingQueue* queue, OutgoingBatch batch, TimePoint now) {
  PublishTopic* topic = queue->topic;
  topic->health.Failed(now, options_.publish_timeout, host_->Random());
  const std::string error = batch.last_error;
  TimePoint next_try = topic->health.next_probe();
  if (!topic->health.down()) {
    next_try = RetryLater(queue, std::move(batch), now);
  } else if (now >= batch.Deadline(options_.publish_timeout)) {
    results_.End(queue, batch);
  } else {
    queue->again.push_back(std::move(batch));
  }
  host_->TopicFails(topic->name, *topic->health.failing_since(), next_try, error);
  if (topic->health.GiveUp(now)) GiveUp(topic, error);
}

PublishScheduler::TimePoint PublishScheduler::RetryLater(OutgoingQueue* queue, OutgoingBatch batch,
                                                         TimePoint now) {
  const TimePoint next = now + BackoffDelay(options_.backoff, batch.attempts, host_->Random());
  if (next >= batch.Deadline(options_.publish_timeout)) {
    results_.End(queue, batch);
  } else {
    delays_.RetryAt(next, queue, std::move(batch));
  }
  return next;
}

void PublishScheduler::SendSlower(OutgoingQueue* queue, OutgoingBatch batch, TimePoint now) {
  batch.first_sent.reset();  // none of it was taken, so it is not unknown
  if (!queue->pace) queue->pace.emplace();
  queue->pace->Refused(batch.size);
  queue->again.push_back(std::move(batch));
  delays_.Pause(queue, now);
}

void PublishScheduler::SendAgain(std::vector<PublishDelays::Retry> retries) {
  for (PublishDelays::Retry& retry : retries) {
    retry.queue->again.push_back(std::move(retry.batch));
    turns_.MarkReady(retry.queue);
  }
}

void PublishScheduler::RetryNow(PublishTopic* topic, TimePoint now) {
  topic->retried_at = now;
  SendAgain(delays_.TakeOf(topic));
}

void PublishScheduler::Answered(PublishTopic* topic, TimePoint now) {
  const bool was_down = topic->health.down();
  if (topic->health.failing_since()) host_->TopicAnswers(topic->name);
  topic->health.Answered(now);
  if (was_down) RetryNow(topic, now);
}

void PublishScheduler::GiveUp(PublishTopic* topic, const std::string& error) {
  for (const PublishDelays::Retry& retry : delays_.TakeOf(topic)) {
    results_.GiveUp(retry.queue, retry.batch);
  }
  for (auto& [key, queue] : topic->queues) {
    // What is in flight ends with its answer, and then what is behind it: in their order.
    if (queue->keyed() && queue->busy > 0) continue;
    results_.Stop(queue.get(), PublishStatus::kUnreachable, error);
  }
  turns_.Remove(topic);
}

std::optional<PublishScheduler::TimePoint> PublishScheduler::NextWake() const {
  std::optional<TimePoint> wake = delays_.NextTime();
  const auto by = [&wake](std::optional<TimePoint> time) {
    if (time) wake = std::min(wake.value_or(TimePoint::max()), *time);
  };
  by(sent_.channels().close_at());
  if (AnyWaits()) {
    by(last_sweep_ + kSweepInterval);
    by(sent_.window().NextTime());
    by(turns_.NextProbe(host_->Now()));
  }
  return wake;
}

void PublishScheduler::OnTime() {
  const TimePoint now = host_->Now();
  SendAgain(delays_.TakeDue(now));
  for (OutgoingQueue* queue : delays_.EndPauses(now)) {
    turns_.MarkReady(queue);
    queue->topic->EraseIfUnused(queue);
  }
  if (now >= last_sweep_ + kSweepInterval) {
    last_sweep_ = now;
    for (PublishTopic* topic : turns_.ready()) {
      for (OutgoingQueue* queue : topic->ready.All()) results_.Expire(queue, now);
    }
  }
  for (const int channel : sent_.OnTime(now)) host_->CloseChannel(channel);
  Pump();
}

void PublishScheduler::Cancel() {
  for (PublishDelays::Retry& retry : delays_.TakeAll()) {
    retry.queue->cancelling = retry.queue->keyed();
    results_.Fail(retry.queue, retry.batch, PublishStatus::kUnknown,
                  retry.batch.last_error + " (cancelled after " +
                      std::to_string(retry.batch.attempts) + " attempts)");
  }
  for (const auto& [name, topic] : turns_.topics()) {
    for (auto& [key, queue] : topic->queues) {
      if (queue->keyed() && queue->busy > 0) {
        queue->cancelling = true;
      } else {
        results_.Stop(queue.get(), PublishStatus::kUnknown, PublishResults::kNotSent);
      }
    }
  }
  for (OutgoingQueue* queue : delays_.EndPauses(TimePoint::max())) {
    queue->topic->EraseIfUnused(queue);
  }
  for (const auto& [name, topic] : turns_.topics()) turns_.Remove(topic.get());
  for (const std::uint64_t id : sent_.CancelAll()) host_->Abort(id);
}

}  // namespace postbox::pubsub
