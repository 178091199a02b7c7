#include "worker/puller/subscription_stream.h"

#include <utility>

#include "worker/puller/failpoint.h"
#include "worker/puller/log.h"

namespace postbox::puller {

bool SubscriptionStream::Open(std::string* error) {
  pubsub::SubscriberOptions options;
  options.endpoint = config_.endpoint;
  options.subscription = config_.subscription;
  options.quota_project = config_.quota_project;
  options.credential = config_.credential;
  options.spans = config_.spans;
  options.max_outstanding_messages = config_.max_outstanding_messages;
  options.max_outstanding_bytes = config_.max_outstanding_bytes;
  subscriber_ = pubsub::Subscriber::Create(std::move(options), Callbacks(), error);
  return subscriber_ != nullptr;
}

pubsub::SubscriberCallbacks SubscriptionStream::Callbacks() {
  pubsub::SubscriberCallbacks callbacks;
  callbacks.on_messages = on_messages_;
  callbacks.on_settled = [this](uint64_t handle, pubsub::Settlement settlement) {
    if (settlement == pubsub::Settlement::kDone) return Failpoint("after_ack");
    LogDebug("ack or nack not accepted, the message may be delivered again",
             {{"subscription", config_.name}, {"handle", handle}});
  };
  callbacks.on_connected = [this](bool exactly_once, bool ordered) {
    ordered_ = ordered;
    SetState(PullStatus::Stream::kConnected, "");
    LogDebug(
        "stream connected",
        {{"subscription", config_.name}, {"exactly_once", exactly_once}, {"ordered", ordered}});
  };
  callbacks.on_ack_failure = [this](const std::string& text) {
    status_->AckFailed(Cut(text, QueryResult::kMaxErrorBytes), Clock::now());
    on_change_();
    LogRepeated("acks not accepted, trying again",
                {{"subscription", config_.name}, {"error", text}});
  };
  callbacks.on_failure = [this](const std::string& text) {
    SetState(PullStatus::Stream::kReconnecting, text);
    LogRepeated("stream failed, trying again", {{"subscription", config_.name}, {"error", text}});
  };
  callbacks.on_fatal = [this](const std::string& text) {
    LogError("subscription failed", {{"subscription", config_.name},
                                     {"pubsub_subscription", config_.subscription},
                                     {"error", text}});
    SetState(PullStatus::Stream::kFailed, text);
    failed_ = true;
  };
  callbacks.on_call = [this](const pubsub::CallReport& call) { metrics_->Called(call); };
  return callbacks;
}

void SubscriptionStream::SetState(PullStatus::Stream state, const std::string& error) {
  status_->SetStreamState(state, Cut(error, QueryResult::kMaxErrorBytes), Clock::now());
  on_change_();
}

void SubscriptionStream::Ack(std::vector<uint64_t> handles) {
  if (subscriber_) subscriber_->Ack(std::move(handles));
}

void SubscriptionStream::GiveBack(std::function<std::vector<uint64_t>()> take) {
  if (subscriber_) subscriber_->GiveBack(std::move(take));
}

void SubscriptionStream::StopPulling() {
  if (subscriber_) subscriber_->StopPulling();
}

void SubscriptionStream::Stop(Clock::duration timeout) {
  if (!subscriber_) return;
  subscriber_->Stop(std::chrono::duration_cast<std::chrono::milliseconds>(timeout));
}

SubscriptionStream::Clock::duration SubscriptionStream::Silence() {
  const auto now = Clock::now();
  // What waits for an answer does not become more.
  if (sign_.Ask(now)) {
    GiveBack([this] {
      sign_.Given();
      return std::vector<uint64_t>();
    });
  }
  return sign_.Silence(now);
}

}  // namespace postbox::puller
