#include "worker/pubsub/publish/sent_requests.h"

#include <algorithm>

#include "proto/rules/error_class.h"
#include "worker/pubsub/publish/publish_topic.h"

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

bool SentRequest::IsExcused(int code, std::string_view error) const {
  if (code == kDeadlineExceeded) return waited && !has_time;
  return code == kUnavailable && (!has_stream || WasNotSent(error));
}

bool SentRequest::MaybeTaken(int code, std::string_view error) const {
  if (code == kOk) return true;  // not a valid answer
  if (!has_stream || code == kResourceExhausted) return false;
  if (code == kUnavailable && (WasNotSent(error) || HadNoWay(error))) return false;
  return ClassifyPublishError(code, error) == PublishErrorClass::kRetry;
}

bool SentRequest::HasLeft(int code, std::string_view error) const {
  if (code == kUnavailable && (WasNotSent(error) || HadNoWay(error))) return false;
  const bool no_answer = code == kUnavailable || code == kDeadlineExceeded || code == kCancelled;
  return has_stream || !no_answer;
}

SentRequests::SentRequests(const Limits& limits)
    : attempt_timeout_(limits.attempt_timeout),
      window_(limits.least_requests, static_cast<std::size_t>(limits.channels) *
                                         static_cast<std::size_t>(limits.streams_per_channel)),
      channels_(limits.channels, limits.streams_per_channel) {}

bool SentRequests::MayWait(const PublishTopic& topic) const {
  // The deadline of a request runs while it waits.
  return topic.health.answers() && window_.AnswersWithin(attempt_timeout_ / 10) &&
         channels_.MayWait(window_.limit());
}

std::pair<std::uint64_t, const SentRequest&> SentRequests::Add(OutgoingQueue* queue,
                                                               OutgoingBatch batch, bool may_wait,
                                                               std::chrono::milliseconds timeout,
                                                               TimePoint now) {
  const std::uint64_t id = ++last_id_;
  const auto place = channels_.Take(id, queue->keyed() ? queue->channel : -1, batch.size,
                                    window_.limit(), may_wait, now);
  queue->channel = place.channel;
  ++queue->busy;
  ++queue->topic->in_flight;
  SentRequest& request = requests_[id];
  request.queue = queue;
  request.batch = std::move(batch);
  request.channel = place.channel;
  request.connected = channels_.connected(place.channel);
  request.sent_at = now;
  request.until = now + timeout;
  const bool first = !request.batch.first_sent;
  if (first) request.batch.first_sent = now;
  if (!request.batch.began) request.batch.began = now;
  if (streams_ >= window_.limit()) window_.Limited();
  if (place.has_stream) {
    GiveStream(&request, now);
  } else {
    request.waited = true;
    request.first = first;
    ++queue->topic->waiting;
  }
  return {id, request};
}

void SentRequests::GiveStream(SentRequest* request, TimePoint now) {
  request->has_stream = true;
  request->number = ++last_stream_;
  request->began = now;
  request->few = window_.IsFew(streams_++);
  OutgoingBatch& batch = request->batch;
  if (request->first) batch.first_sent = std::min(now, batch.send_by);
  request->has_time = request->until - now >= attempt_timeout_ / 2;
  if (request->has_time) batch.tried_at = now;
}

std::optional<SentRequest> SentRequests::Remove(std::uint64_t id, bool answered, TimePoint now) {
  const auto at = requests_.find(id);
  if (at == requests_.end()) return std::nullopt;
  std::optional<SentRequest> request(std::move(at->second));
  requests_.erase(at);
  PublishTopic* const topic = request->queue->topic;
  // What was sent before there was a connection has waited for that.
  if (answered && request->connected && request->has_stream) {
    window_.Answered({request->number, last_stream_, streams_, request->few, request->waited},
                     now - request->began, now);
  }
  if (answered) channels_.Connected(request->channel);
  if (request->has_stream) {
    --streams_;
  } else {
    --topic->waiting;
  }
  --request->queue->busy;
  --topic->in_flight;
  const auto left = channels_.Done(id, request->channel, request->batch.size, request->has_stream);
  if (left.begins) {
    SentRequest& next = requests_.at(*left.begins);
    --next.queue->topic->waiting;
    GiveStream(&next, now);
  }
  request->closes_channel = left.close;
  return request;
}

std::vector<std::uint64_t> SentRequests::CancelAll() {
  std::vector<std::uint64_t> ids;
  for (auto& [id, request] : requests_) {
    request.batch.cancelled = true;
    ids.push_back(id);
  }
  return ids;
}

std::vector<int> SentRequests::OnTime(TimePoint now) {
  window_.OnTime(now);
  return channels_.CloseUnused(now);
}

}  // namespace postbox::pubsub
