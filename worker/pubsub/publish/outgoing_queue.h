// The queue of a (topic, ordering key), or of a topic's messages without a key: what is to be sent
// of it, and whether it may be sent now.
//
// What was cut or put back (`again`) is sent before what was never sent (`waiting`).
#ifndef POSTBOX_WORKER_PUBSUB_PUBLISH_OUTGOING_QUEUE_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISH_OUTGOING_QUEUE_H_

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "proto/rules/limits.h"
#include "worker/pubsub/publish/outgoing_batch.h"
#include "worker/pubsub/publish/outgoing_message.h"
#include "worker/pubsub/publish/request_pace.h"
#include "worker/pubsub/publish/waiting_messages.h"

namespace postbox::pubsub {

struct PublishTopic;

class OutgoingQueue {
 public:
  PublishTopic* topic = nullptr;
  std::string key;   // empty: without a key
  int channel = -1;  // of the last request; -1: none yet
  int max_busy = 1;  // without a key: not counting full requests

  std::vector<OutgoingBatch> again;  // from the back
  WaitingMessages waiting;
  int busy = 0;         // requests in flight or waiting for their next attempt
  bool ready = false;   // is in its topic's line
  bool paused = false;  // between two requests (publish_delays.h)
  std::optional<RequestPace> pace;
  bool failed = false;          // of a key: all messages that are added are kBehind
  bool cancelling = false;      // of a key: what waits is cancelled when its request is answered
  std::size_t outstanding = 0;  // added and not taken yet

  bool keyed() const { return !key.empty(); }
  // Its next message.
  bool IsUrgent() const {
    return again.empty() ? !waiting.empty() && waiting.front()->urgent
                         : again.back().messages.front()->urgent;
  }
  bool CanSend() const {
    return !paused && (busy < max_busy || IsFull()) && (!again.empty() || !waiting.empty());
  }
  void Add(OutgoingMessage* message) {
    keyed() || !message->urgent ? waiting.Push(message) : waiting.PushUrgent(message);
  }
  // Moves the messages of the next request into the batch. False: the next message must not be sent
  // and is to be rejected, or nothing waits.
  bool TakeBatch(std::chrono::steady_clock::time_point now, OutgoingBatch* batch);
  // The batch is sent again, in two parts.
  void PutBackInHalves(const OutgoingBatch& batch);

 private:
  bool IsFull() const { return !keyed() && waiting.size() >= kMaxRequestMessages; }
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISH_OUTGOING_QUEUE_H_
