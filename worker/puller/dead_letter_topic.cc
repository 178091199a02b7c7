#include "worker/puller/dead_letter_topic.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <utility>

#include "proto/rules/limits.h"
#include "proto/rules/utf8.h"

namespace postbox::puller {
namespace {

constexpr std::chrono::seconds kPublishTimeout{30};
constexpr size_t kErrorAttributes = 3;

// The text, cut to the length of an attribute value at a character boundary.
std::string AttributeValue(std::string text) {
  if (text.size() > pubsub::kMaxAttributeValueBytes) text.resize(pubsub::kMaxAttributeValueBytes);
  text.resize(pubsub::FirstInvalidUtf8(text));
  return text;
}

}  // namespace

pubsub::OutgoingMessage DeadLetterMessage(const Delivery& delivery, std::string_view topic,
                                          const std::string& subscription,
                                          const std::string& sqlstate, const std::string& error) {
  pubsub::Attributes attributes;
  for (const auto& attribute : delivery.message.attributes) {
    if (attribute.first.starts_with(pubsub::kReservedPrefix)) continue;
    if (attribute.first.starts_with("postbox_error_") ||
        attribute.first == "postbox_original_subscription") {
      continue;  // left by an earlier pass through a dead-letter topic
    }
    if (attributes.size() + kErrorAttributes >= pubsub::kMaxAttributes) break;
    attributes.push_back(attribute);
  }
  attributes.emplace_back("postbox_error_sqlstate", sqlstate);
  attributes.emplace_back("postbox_error_message", AttributeValue(error));
  attributes.emplace_back("postbox_original_subscription", AttributeValue(subscription));
  return pubsub::MakeOutgoingMessage(topic, delivery.message.ordering_key, delivery.event.payload,
                                     attributes);
}

DeadLetterTopic::~DeadLetterTopic() {
  publisher_.reset();
  if (notify_fd_ >= 0) close(notify_fd_);
}

bool DeadLetterTopic::Publish(const Delivery& delivery, const std::string& sqlstate,
                              const std::string& message, std::string* error) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!publisher_) {
    if (notify_fd_ < 0) notify_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (notify_fd_ < 0) {
      *error = "no file descriptor is left";
      return false;
    }
    pubsub::PublisherOptions options;
    options.endpoint = endpoint_;
    options.channels = 1;
    options.publish_timeout = kPublishTimeout;
    options.quota_project = quota_project_;
    options.notify_fd = notify_fd_;
    publisher_ = pubsub::Publisher::Create(std::move(options), error);
    if (!publisher_) return false;
  }
  pubsub::OutgoingMessage letter =
      DeadLetterMessage(delivery, topic_, subscription_, sqlstate, message);
  if (!publisher_->Publish(&letter)) {
    *error = "the publisher did not take the message";
    return false;
  }
  // The result comes within publish_timeout. After twice that time the publisher is stuck.
  const auto give_up = std::chrono::steady_clock::now() + 2 * kPublishTimeout;
  while (std::chrono::steady_clock::now() < give_up) {
    if (!publisher_->TakeResults().empty()) {
      *error = letter.error;
      return letter.status == pubsub::PublishStatus::kPublished;
    }
    pollfd ready{notify_fd_, POLLIN, 0};
    if (poll(&ready, 1, 100) > 0) {
      uint64_t count = 0;
      if (read(notify_fd_, &count, sizeof(count)) < 0) continue;
    }
  }
  publisher_.reset();
  *error = "no answer from the publisher";
  return false;
}

}  // namespace postbox::puller
