// Which topic sends next, whether its requests may wait for a stream, and how they come and go.
#include <algorithm>
#include <string_view>

#include "proto/rules/error_class.h"
#include "proto/rules/fair_share.h"
#include "worker/pubsub/publish_scheduler.h"
#include "worker/pubsub/publish_scheduler_queue.h"

namespace postbox::pubsub {

namespace {

// What gRPC says of a request that it has not sent: the server was about to close the connection,
// or the connection was closed already.
bool WasNotSent(std::string_view error) {
  return error.starts_with("GOAWAY received") || error.starts_with("Transport closed");
}

// There was no connection.
bool HadNoWay(std::string_view error) {
  return error.starts_with("failed to connect") || error.starts_with("DNS resolution failed");
}

}  // namespace

PublishScheduler::Topic* PublishScheduler::NextTopic() {
  std::size_t limit = window_.limit();
  // What waits for a stream may wait behind a connection that is lost. It costs nothing, as
  // long as others find a stream.
  const bool free_stream = channels_.HasFreeStream();
  const auto held = [&](const Topic& topic) {
    return free_stream ? topic.streams() : topic.in_flight;
  };
  std::size_t answering = free_stream ? streams_ : in_flight_.size();
  if (topics_.size() > 1) {
    // What is guaranteed comes on top, and all together is what may be in flight. A topic that does
    // not answer, or has yet to, gets no more than that, and costs the others nothing.
    limit = limit * kGuaranteedPart / (kGuaranteedPart + 1);
    for (const auto& [name, topic] : topics_) {
      if (!topic->health.answers()) answering -= held(*topic);
    }
  }
  for (std::size_t i = 0; i < ready_.size(); ++i) {
    Topic* topic = ready_.front();
    ready_.pop_front();
    const bool has_room = MayWait(*topic) ? in_flight_.size() < 2 * window_.limit()
                          : topics_.size() == 1 || topic->health.answers()
                              ? MayTake(limit, topics_.size(), answering, held(*topic)) > 0
                              : topic->in_flight < Guaranteed(limit, topics_.size());
    const bool may_send = MaySend(*topic);
    if (has_room && may_send) return topic;
    if (may_send) window_.Limited();
    ready_.push_back(topic);
  }
  return nullptr;
}

bool PublishScheduler::MaySend(const Topic& topic) const {
  return !topic.health.down() ||
         (topic.in_flight == 0 && host_->Now() >= topic.health.next_probe());
}

bool PublishScheduler::MayWait(const Topic& topic) const {
  // Behind its requests those of another would have to wait.
  const bool alone = topic.in_flight == in_flight_.size() &&
                     std::all_of(ready_.begin(), ready_.end(),
                                 [&](const Topic* ready) { return ready == &topic; });
  // The deadline of a request runs while it waits.
  return alone && topic.health.answers() && window_.AnswersWithin(AttemptTimeout() / 10) &&
         channels_.MayWait(window_.limit());
}

void PublishScheduler::Begin(InFlight* request) {
  const TimePoint now = host_->Now();
  request->has_stream = true;
  request->number = ++last_stream_;
  request->began = now;
  request->few = window_.IsFew(streams_++);
  Batch& batch = request->batch;
  if (request->first) batch.first_sent = std::min(now, batch.send_by);
  request->has_time = request->until - now >= AttemptTimeout() / 2;
  if (request->has_time) batch.tried_at = now;
}

void PublishScheduler::Leave(std::uint64_t request_id, const InFlight& request, bool answered) {
  // What was sent before there was a connection has waited for that.
  if (answered && request.connected && request.has_stream) {
    window_.Answered({request.number, last_stream_, streams_, request.few, request.waited},
                     host_->Now() - request.began, host_->Now());
  }
  if (answered) channels_.Connected(request.channel);
  if (request.has_stream) {
    --streams_;
  } else {
    --request.queue->topic->waiting;
  }
  const auto left =
      channels_.Done(request_id, request.channel, request.batch.size, request.has_stream);
  if (left.begins) {
    InFlight& next = in_flight_.at(*left.begins);
    --next.queue->topic->waiting;
    Begin(&next);
  }
  if (left.close) host_->CloseChannel(request.channel);
}

bool PublishScheduler::IsExcused(const InFlight& request, const Response& response) {
  if (response.code == kDeadlineExceeded) return request.waited && !request.has_time;
  return response.code == kUnavailable && (!request.has_stream || WasNotSent(response.message));
}

bool PublishScheduler::MaybeTaken(const InFlight& request, const Response& response) {
  if (response.code == kOk) return true;  // not a valid answer
  if (!request.has_stream || response.code == kResourceExhausted) return false;
  if (response.code == kUnavailable && (WasNotSent(response.message) || HadNoWay(response.message)))
    return false;
  return ClassifyPublishError(response.code, response.message) == PublishErrorClass::kRetry;
}

}  // namespace postbox::pubsub
