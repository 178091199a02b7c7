#include "worker/puller/dead_letter_topic.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <utility>

#include "proto/rules/limits.h"
#include "worker/puller/failpoint.h"
#include "worker/puller/log.h"

namespace postbox::puller {
namespace {

constexpr std::chrono::seconds kPublishTimeout{30};
// How often the thread looks if nothing wakes it.
constexpr int kLookMilliseconds = 1000;

// The text, cut to the length of an attribute value.
std::string AttributeValue(const std::string& text) {
  constexpr size_t kRoom = pubsub::kMaxAttributeValueBytes - 3;  // for "..."
  return text.size() <= pubsub::kMaxAttributeValueBytes ? text : Cut(text, kRoom);
}

// Attributes that Pub/Sub takes, of the original message, and at most `error_attributes` of the
// error.
pubsub::Attributes LetterAttributes(const Delivery& delivery, const std::string& subscription,
                                    const EventFailure& failure, size_t error_attributes) {
  pubsub::Attributes attributes;
  for (const auto& attribute : delivery.message.attributes) {
    if (attribute.first.starts_with(pubsub::kReservedPrefix) &&
        !pubsub::IsTraceNameOfClients(attribute.first)) {
      continue;
    }
    if (attribute.first.starts_with(pubsub::kErrorPrefix) ||
        attribute.first == pubsub::kOriginalSubscription) {
      continue;  // left by an earlier pass through a dead-letter topic
    }
    if (attributes.size() + error_attributes >= pubsub::kMaxAttributes) break;
    attributes.emplace_back(attribute.first, attribute.second);
  }
  if (error_attributes >= 1) attributes.emplace_back(pubsub::kErrorSqlstate, failure.sqlstate);
  if (error_attributes >= 2) {
    attributes.emplace_back(pubsub::kOriginalSubscription, AttributeValue(subscription));
  }
  if (error_attributes >= 3) {
    attributes.emplace_back(pubsub::kErrorMessage, AttributeValue(failure.error));
  }
  return attributes;
}

}  // namespace

pubsub::OutgoingMessage DeadLetterMessage(const Delivery& delivery, std::string_view topic,
                                          const std::string& subscription,
                                          const EventFailure& failure) {
  for (size_t error_attributes : {3, 2, 0}) {
    pubsub::OutgoingMessage message = pubsub::MakeOutgoingMessage(
        topic, std::string(delivery.message.ordering_key), delivery.event.payload,
        LetterAttributes(delivery, subscription, failure, error_attributes));
    if (message.error.empty() || error_attributes == 0) return message;
  }
  return {};
}

void DeadLetterTopic::Send(Letter letter) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stopping_) return;
  waiting_.push_back(std::move(letter));
  if (notify_fd_ < 0) notify_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  if (notify_fd_ >= 0) eventfd_write(notify_fd_, 1);
}

std::chrono::steady_clock::duration DeadLetterTopic::Silence() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!thread_.joinable()) return {};
  }
  const auto now = std::chrono::steady_clock::now();
  sign_.Ask(now);  // it looks once a second
  return sign_.Silence(now);
}

void DeadLetterTopic::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    if (notify_fd_ >= 0) eventfd_write(notify_fd_, 1);
  }
  if (thread_.joinable()) thread_.join();
  if (notify_fd_ >= 0) close(std::exchange(notify_fd_, -1));
}

void DeadLetterTopic::Run() {
  while (true) {
    sign_.Given();
    std::deque<Letter> letters;
    int notify_fd = -1;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (stopping_) break;
      letters.swap(waiting_);
      notify_fd = notify_fd_;
    }
    for (Letter& letter : letters) Publish(std::move(letter));
    if (!letters.empty()) Failpoint("dead_letter");
    if (publisher_) TakeResults();
    if (!letters.empty()) continue;
    // Without a descriptor it looks again from time to time.
    pollfd ready{notify_fd, POLLIN, 0};
    uint64_t count = 0;
    if (poll(&ready, 1, kLookMilliseconds) > 0) eventfd_read(notify_fd, &count);
  }
  publisher_.reset();
  sent_.clear();
}

bool DeadLetterTopic::Open(std::string* error) {
  if (publisher_) return true;
  pubsub::PublisherOptions options;
  options.endpoint = access_.endpoint;
  options.channels = 1;
  options.publish_timeout = kPublishTimeout;
  options.quota_project = access_.quota_project;
  options.credential = access_.credential;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    options.notify_fd = notify_fd_;
  }
  publisher_ = pubsub::Publisher::Create(std::move(options), error);
  return publisher_ != nullptr;
}

void DeadLetterTopic::Publish(Letter letter) {
  auto sent = std::make_unique<Sent>();
  sent->letter = std::move(letter);
  Letter& own = sent->letter;
  if (Open(&own.error)) {
    sent->message = DeadLetterMessage(own.delivery, topic_, subscription_, own.failure);
    pubsub::OutgoingMessage* message = &sent->message;
    if (publisher_->Publish(message)) {
      sent_.emplace(message, std::move(sent));
      return;
    }
    own.error = "too much is in flight to the dead-letter topic";
  }
  on_result_(std::move(own));
}

void DeadLetterTopic::TakeResults() {
  for (pubsub::OutgoingMessage* message : publisher_->TakeResults()) {
    auto sent = sent_.extract(message);
    if (sent.empty()) continue;
    Letter letter = std::move(sent.mapped()->letter);
    letter.error = std::move(message->error);
    if (message->status == pubsub::PublishStatus::kPublished) letter.result = Letter::kPublished;
    if (message->status == pubsub::PublishStatus::kRejected) letter.result = Letter::kRefused;
    on_result_(std::move(letter));
  }
}

}  // namespace postbox::puller
