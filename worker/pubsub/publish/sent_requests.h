// The requests that were not answered yet: which channel each takes, whether it has a stream there
// or waits for one in gRPC, and what its answer says about the way to the broker.
//
// How many may have a stream is for request_window.h, on which channel for channel_loads.h. Time
// counts from when a request has a stream, if it need not wait for that beyond its `send_by`.
//
// Pure logic, without a clock.
#ifndef POSTBOX_WORKER_PUBSUB_PUBLISH_SENT_REQUESTS_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISH_SENT_REQUESTS_H_

#include <absl/container/flat_hash_map.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/pubsub/publish/channel_loads.h"
#include "worker/pubsub/publish/outgoing_batch.h"
#include "worker/pubsub/publish/outgoing_queue.h"
#include "worker/pubsub/publish/request_window.h"

namespace postbox::pubsub {

struct SentRequest {
  using TimePoint = std::chrono::steady_clock::time_point;

  OutgoingQueue* queue = nullptr;
  OutgoingBatch batch;
  // Of this attempt.
  int channel = 0;
  bool connected = false;   // the channel, when it was sent
  bool has_stream = false;  // false: it waits for one in gRPC
  bool waited = false;      // has waited for it
  bool first = false;       // it has not been sent before, and waits
  bool has_time = false;    // at least half of what an attempt has, when it had its stream
  TimePoint sent_at{};
  TimePoint until{};
  // Of its stream.
  std::uint64_t number = 0;
  TimePoint began{};
  bool few = false;             // had one then
  bool closes_channel = false;  // with its end

  // Whether it failed since, as far as is known, the broker has not seen it, or too late.
  bool IsExcused(int code, std::string_view error) const;
  // Whether the broker may have taken the messages of one that failed.
  bool MaybeTaken(int code, std::string_view error) const;
  // Whether one that has ended was sent, as far as is known.
  bool HasLeft(int code, std::string_view error) const;
};

class SentRequests {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Limits {
    int channels;
    int streams_per_channel;
    std::size_t least_requests;
    std::chrono::milliseconds attempt_timeout;  // of an attempt that has all its time
  };
  explicit SentRequests(const Limits& limits);

  std::size_t size() const { return requests_.size(); }
  std::size_t streams() const { return streams_; }  // in use
  const RequestWindow& window() const { return window_; }
  const ChannelLoads& channels() const { return channels_; }

  // Whether requests of a topic that is alone may wait for a stream.
  bool MayWait(const PublishTopic& topic) const;
  // A request could have been sent, were it not for the limit of streams.
  void NoteLimited() { window_.Limited(); }

  // A batch is sent now. The reference is valid until the next call.
  std::pair<std::uint64_t, const SentRequest&> Add(OutgoingQueue* queue, OutgoingBatch batch,
                                                   bool may_wait, std::chrono::milliseconds timeout,
                                                   TimePoint now);
  // A request has ended; nothing if it is not known. `answered`: the broker has answered it.
  std::optional<SentRequest> Remove(std::uint64_t id, bool answered, TimePoint now);
  // What fails from now on is not sent again. Returns the ids.
  std::vector<std::uint64_t> CancelAll();

  // The channels that are to be closed now.
  std::vector<int> OnTime(TimePoint now);

 private:
  void GiveStream(SentRequest* request, TimePoint now);

  const std::chrono::milliseconds attempt_timeout_;
  absl::flat_hash_map<std::uint64_t, SentRequest> requests_;
  std::uint64_t last_id_ = 0;
  std::uint64_t last_stream_ = 0;
  std::size_t streams_ = 0;
  RequestWindow window_;
  ChannelLoads channels_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISH_SENT_REQUESTS_H_
