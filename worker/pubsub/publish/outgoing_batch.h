// The messages of one request, which stay together when it is sent again.
#ifndef POSTBOX_WORKER_PUBSUB_PUBLISH_OUTGOING_BATCH_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISH_OUTGOING_BATCH_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "proto/rules/wire_size.h"
#include "worker/pubsub/publish/outgoing_message.h"

namespace postbox::pubsub {

struct OutgoingBatch {
  using TimePoint = std::chrono::steady_clock::time_point;

  std::vector<OutgoingMessage*> messages;
  std::size_t size = 0;  // of the encoded request
  int attempts = 0;      // failed so far
  std::string last_error;
  int last_code = 0;  // of the last answer; INTERNAL if that was not valid
  bool cancelled = false;
  int excused = 0;                       // failures that are not its fault
  TimePoint send_by = TimePoint::max();  // the earliest of its messages
  std::optional<TimePoint> first_sent;
  std::optional<TimePoint> began;     // when it was sent first, whatever became of that
  std::optional<TimePoint> tried_at;  // its last attempt that had time enough

  TimePoint Deadline(std::chrono::milliseconds publish_timeout) const {
    return first_sent ? *first_sent + publish_timeout : send_by;
  }

  // Two smaller requests with the same times, in their order. They have no attempts yet.
  // `topic_size`: of the topic's name.
  std::array<OutgoingBatch, 2> Halves(std::size_t topic_size) const {
    const auto middle = messages.begin() + static_cast<std::ptrdiff_t>(messages.size() / 2);
    std::array<OutgoingBatch, 2> halves;
    halves[0].messages.assign(messages.begin(), middle);
    halves[1].messages.assign(middle, messages.end());
    for (OutgoingBatch& half : halves) {
      half.send_by = send_by;
      half.first_sent = first_sent;
      half.began = began;
      half.tried_at = tried_at;
      half.last_error = last_error;
      half.last_code = last_code;
      half.size = EmptyRequestSize(topic_size);
      for (const OutgoingMessage* message : half.messages) {
        half.size += MessageSizeInRequest(message->encoded.size());
      }
    }
    return halves;
  }
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISH_OUTGOING_BATCH_H_
