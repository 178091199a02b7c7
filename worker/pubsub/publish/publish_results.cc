#include "worker/pubsub/publish/publish_results.h"

#include <cstddef>
#include <utility>

#include "worker/pubsub/publish/prefetch.h"
#include "worker/pubsub/publish/publish_topic.h"

namespace postbox::pubsub {

namespace {

constexpr char kNotSentInTime[] =
    "DEADLINE_EXCEEDED: not sent in time, the broker accepts messages more slowly than they arrive";

std::string Seconds(std::chrono::milliseconds duration) {
  const auto count = duration.count();
  return count % 1000 == 0 ? std::to_string(count / 1000) + " s" : std::to_string(count) + " ms";
}

}  // namespace

void PublishResults::Deliver(OutgoingQueue* queue, OutgoingMessage* message, PublishStatus status,
                             const std::string& error) {
  message->status = status;
  message->error = error;
  host_->Deliver(message, queue);
}

void PublishResults::Published(OutgoingQueue* queue, const OutgoingBatch& batch, TimePoint now) {
  metering_->Ended(batch, batch.last_code, now);
  for (std::size_t i = 0; i < batch.messages.size(); ++i) {
    PrefetchAhead(batch.messages, i, kFetchAhead);
    batch.messages[i]->status = PublishStatus::kPublished;
    host_->Deliver(batch.messages[i], queue);
  }
  if (queue->cancelling) Stop(queue, PublishStatus::kUnknown, kNotSent);
}

void PublishResults::Refuse(OutgoingQueue* queue, OutgoingMessage* message) {
  if (queue->failed) {
    Deliver(queue, message, PublishStatus::kBehind,
            "an earlier message of its key was not published");
  } else {
    host_->Deliver(message, queue);
  }
}

void PublishResults::RejectNext(OutgoingQueue* queue) {
  OutgoingMessage* rejected = queue->waiting.PopFront();
  const std::string error = rejected->error;
  host_->Deliver(rejected, queue);
  Stop(queue, PublishStatus::kBehind, error);
}

void PublishResults::Fail(OutgoingQueue* queue, const OutgoingBatch& batch, PublishStatus status,
                          const std::string& error) {
  metering_->Ended(batch, batch.last_code, host_->Now());
  for (OutgoingMessage* message : batch.messages) Deliver(queue, message, status, error);
  if (!queue->keyed()) return;
  queue->failed = true;
  if (queue->cancelling) {
    Stop(queue, PublishStatus::kUnknown, kNotSent);
  } else {
    Stop(queue, PublishStatus::kBehind, error);
  }
}

void PublishResults::Stop(OutgoingQueue* queue, PublishStatus status, const std::string& error) {
  const std::string text = status == PublishStatus::kBehind
                               ? "an earlier message of its key was not published: " + error
                               : error;
  // A cancel that finds no message waiting does not stop the key.
  if (queue->keyed() &&
      (!queue->again.empty() || !queue->waiting.empty() || status == PublishStatus::kBehind)) {
    queue->failed = true;
  }
  for (auto batch = queue->again.rbegin(); batch != queue->again.rend(); ++batch) {
    for (OutgoingMessage* message : batch->messages) Deliver(queue, message, status, text);
  }
  while (!queue->waiting.empty()) Deliver(queue, queue->waiting.PopFront(), status, text);
  queue->cancelling = false;
  queue->again.clear();
}

void PublishResults::End(OutgoingQueue* queue, const OutgoingBatch& batch) {
  if (!batch.first_sent) {
    Fail(queue, batch, PublishStatus::kBehind, kNotSentInTime);
  } else if (batch.tried_at &&
             queue->topic->health.AnswersOthers(*batch.first_sent, *batch.tried_at)) {
    Fail(queue, batch, PublishStatus::kUnknown, GaveUp(batch));
  } else {
    GiveUp(queue, batch);
  }
}

void PublishResults::Expire(OutgoingQueue* queue, TimePoint now) {
  while (!queue->again.empty() && queue->again.back().Deadline(publish_timeout_) <= now) {
    const OutgoingBatch batch = std::move(queue->again.back());
    queue->again.pop_back();
    End(queue, batch);
  }
  while (queue->again.empty() && !queue->waiting.empty() &&
         queue->waiting.front()->send_by <= now) {
    OutgoingBatch batch;
    batch.messages.push_back(queue->waiting.PopFront());
    End(queue, batch);
  }
}

void PublishResults::GiveUp(OutgoingQueue* queue, const OutgoingBatch& batch) {
  Fail(queue, batch, PublishStatus::kUnreachable, GaveUp(batch));
}

std::string PublishResults::GaveUp(const OutgoingBatch& batch) const {
  return batch.last_error + " (gave up after " + std::to_string(batch.attempts) +
         (batch.attempts == 1 ? " attempt" : " attempts") + ", publish timeout " +
         Seconds(publish_timeout_) + ")";
}

}  // namespace postbox::pubsub
