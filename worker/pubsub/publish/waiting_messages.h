// The messages of a queue that were not sent yet, in the order in which they are to leave.
#ifndef POSTBOX_WORKER_PUBSUB_PUBLISH_WAITING_MESSAGES_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISH_WAITING_MESSAGES_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

#include "proto/rules/limits.h"
#include "proto/rules/wire_size.h"
#include "worker/pubsub/publish/outgoing_batch.h"
#include "worker/pubsub/publish/outgoing_message.h"
#include "worker/pubsub/publish/prefetch.h"

namespace postbox::pubsub {

class WaitingMessages {
 public:
  bool empty() const { return begin_ == messages_.size(); }
  std::size_t size() const { return messages_.size() - begin_; }
  OutgoingMessage* front() const { return messages_[begin_]; }

  void Push(OutgoingMessage* message) { messages_.push_back(message); }
  // Behind the urgent ones, before all others.
  void PushUrgent(OutgoingMessage* message) {
    messages_.insert(messages_.begin() + static_cast<std::ptrdiff_t>(begin_ + urgent_++), message);
  }
  OutgoingMessage* PopFront() {
    OutgoingMessage* message = front();
    DropFront(1);
    return message;
  }

  // Moves messages to the batch, whose size is that of an empty request: as many as a request may
  // have, up to `most_bytes`, but one of any size. One that is rejected ends the batch, and so does
  // one whose send_by is over, unless it is the first.
  void Fill(OutgoingBatch* batch, std::size_t most_bytes,
            std::chrono::steady_clock::time_point now) {
    const std::size_t most = std::min(size(), kMaxRequestMessages);
    batch->messages.reserve(most);
    while (batch->messages.size() < most) {
      const std::size_t at = begin_ + batch->messages.size();
      PrefetchAhead(messages_, at, kFetchAhead);
      OutgoingMessage* next = messages_[at];
      if (next->status == PublishStatus::kRejected) break;
      const std::size_t size = MessageSizeInRequest(next->encoded.size());
      const bool too_large = batch->size + size > most_bytes;
      if (!batch->messages.empty() && (too_large || next->send_by <= now)) break;
      batch->size += size;
      batch->send_by = std::min(batch->send_by, next->send_by);
      PrefetchText(next->encoded);  // copied when the request is sent
      batch->messages.push_back(next);
    }
    DropFront(batch->messages.size());
  }

 private:
  void DropFront(std::size_t messages) {
    begin_ += messages;
    urgent_ -= std::min(urgent_, messages);
    // On average each message is moved once, and at most half of the vector is unused.
    if (begin_ * 2 < messages_.size()) return;
    messages_.erase(messages_.begin(), messages_.begin() + static_cast<std::ptrdiff_t>(begin_));
    begin_ = 0;
  }

  std::vector<OutgoingMessage*> messages_;  // from `begin_` on
  std::size_t begin_ = 0;
  std::size_t urgent_ = 0;  // so many come first
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISH_WAITING_MESSAGES_H_
