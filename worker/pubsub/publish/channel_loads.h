// Which channel a request takes, and how many channels are open. Each is one connection.
//
// A channel has as many streams as Google's front ends take on a connection, and room for
// kMostBytes. The first one is always open; another is opened when no stream of those that are is
// free. A request goes to the channel of the last one of its key as long as that has a free stream,
// else to the one with the fewest requests.
//
// Once there are streams for as many requests as are useful (request_window.h), others may wait for
// one in gRPC, as many again. gRPC starts together, with one write to the socket, what waits for
// the streams that it has found free with one read. A request that is sent when its stream is free
// costs a write.
//
// If kCloseAfter passes in which fewer channels would have been enough, those with the highest
// numbers are not used any more, and are closed when nothing is in flight on them.
//
// Pure logic, without a clock.
#ifndef POSTBOX_WORKER_PUBSUB_PUBLISH_CHANNEL_LOADS_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISH_CHANNEL_LOADS_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace postbox::pubsub {

class ChannelLoads {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  static constexpr std::size_t kMostBytes = 4'000'000;
  static constexpr std::chrono::seconds kCloseAfter{60};

  ChannelLoads(int most, int streams_each)
      : most_(static_cast<std::size_t>(most)),
        streams_each_(static_cast<std::size_t>(streams_each)),
        loads_(1) {}

  // Whether one more request would have a stream.
  bool HasFreeStream() const {
    return open_ < most_ ||
           std::any_of(loads_.begin(), loads_.begin() + static_cast<std::ptrdiff_t>(open_),
                       [&](const Load& load) { return load.requests < streams_each_; });
  }
  // Whether requests may wait for a stream when so many are useful. A connection more must be left
  // for those that may not, and have room. Where the bytes are what fills the connections, none
  // may.
  bool MayWait(std::size_t useful) const {
    return ChannelsFor(useful) < most_ && HasFreeStream() &&
           bytes_ < ChannelsFor(useful) * kMostBytes;
  }

  struct Place {
    int channel;
    bool has_stream;  // if not, it waits for one
  };
  // The place of one more request. `before`: the channel of the last request of its key, or -1.
  // `useful`: so many requests at once; `may_wait`: rather than be given a stream above that.
  Place Take(std::uint64_t request, int before, std::size_t bytes, std::size_t useful,
             bool may_wait, TimePoint now) {
    useful_ = useful;
    const std::size_t channel = Choose(before, bytes, may_wait, now);
    Load& load = loads_[channel];
    const bool has_stream = load.requests < streams_each_;
    if (!has_stream) {
      load.waiting.push_back(request);
      ++waiting_;
    }
    ++load.requests;
    load.bytes += bytes;
    ++requests_;
    most_streams_ = std::max(most_streams_, requests_ - waiting_);
    most_bytes_ = std::max(most_bytes_, bytes_ += bytes);
    return {static_cast<int>(channel), has_stream};
  }

  // A request has ended, which had a stream or has waited for one until now.
  struct Left {
    bool close;                           // the channel is to be closed
    std::optional<std::uint64_t> begins;  // this one has its stream now
  };
  Left Done(std::uint64_t request, int channel, std::size_t bytes, bool had_stream) {
    Load& load = loads_[static_cast<std::size_t>(channel)];
    --load.requests;
    load.bytes -= bytes;
    --requests_;
    bytes_ -= bytes;
    Left left{static_cast<std::size_t>(channel) >= open_ && load.requests == 0, std::nullopt};
    if (!had_stream) {
      std::erase(load.waiting, request);
      --waiting_;
    } else if (!load.waiting.empty()) {
      left.begins = load.waiting.front();
      load.waiting.pop_front();
      --waiting_;
    }
    return left;
  }

  // Whether a request was answered on it since it was opened. Before that they wait for the
  // connection.
  bool connected(int channel) const { return loads_[static_cast<std::size_t>(channel)].connected; }
  void Connected(int channel) { loads_[static_cast<std::size_t>(channel)].connected = true; }

  std::size_t open() const { return open_; }
  // When CloseUnused() is due, if it is.
  std::optional<TimePoint> close_at() const {
    return open_ > 1 ? std::optional(close_at_) : std::nullopt;
  }
  // The channels that are to be closed now.
  std::vector<int> CloseUnused(TimePoint now) {
    std::vector<int> unused;
    if (open_ <= 1 || now < close_at_) return unused;
    const std::size_t needed = std::max(
        {std::size_t{1}, ChannelsFor(most_streams_), (most_bytes_ + kMostBytes - 1) / kMostBytes});
    const std::size_t before = open_;
    open_ = std::min(open_, needed);
    for (std::size_t channel = open_; channel < before; ++channel) {
      if (loads_[channel].requests == 0) unused.push_back(static_cast<int>(channel));
    }
    Watch(now);
    return unused;
  }

 private:
  struct Load {
    std::size_t requests = 0;
    std::size_t bytes = 0;
    bool connected = false;
    // The requests for a stream. gRPC has them in this order, but for a moment after it connects.
    std::deque<std::uint64_t> waiting;
  };

  std::size_t ChannelsFor(std::size_t requests) const {
    return (requests + streams_each_ - 1) / streams_each_;
  }
  bool HasRoom(std::size_t channel, std::size_t bytes, std::size_t most_requests) const {
    const Load& load = loads_[channel];
    return load.requests == 0 ||
           (load.requests < most_requests && load.bytes + bytes <= kMostBytes);
  }
  // Of the first `channels` the one with the fewest requests, if any has room.
  std::optional<std::size_t> Fewest(std::size_t channels, std::size_t bytes,
                                    std::size_t most_requests) const {
    std::optional<std::size_t> fewest;
    for (std::size_t channel = 0; channel < channels; ++channel) {
      if (!HasRoom(channel, bytes, most_requests)) continue;
      if (!fewest || loads_[channel].requests < loads_[*fewest].requests) fewest = channel;
    }
    return fewest;
  }

  std::size_t Choose(int before, std::size_t bytes, bool may_wait, TimePoint now) {
    // Where requests may wait, more connections than are useful would leave nothing to wait.
    const std::size_t channels = may_wait ? std::min(open_, ChannelsFor(useful_)) : open_;
    if (before >= 0) {
      const auto channel = static_cast<std::size_t>(before);
      if (channel < channels && HasRoom(channel, bytes, streams_each_)) return channel;
    }
    if (const auto channel = Fewest(channels, bytes, streams_each_)) return *channel;
    if (may_wait && channels == ChannelsFor(useful_)) {
      if (const auto channel = Fewest(channels, bytes, 2 * streams_each_)) return *channel;
    }
    if (const auto channel = Fewest(open_, bytes, streams_each_)) return *channel;
    if (open_ < most_) return Open(now);
    const auto fewer = [](const Load& one, const Load& other) {
      return one.requests < other.requests;
    };
    return static_cast<std::size_t>(
        std::min_element(loads_.begin(), loads_.begin() + static_cast<std::ptrdiff_t>(open_),
                         fewer) -
        loads_.begin());
  }

  std::size_t Open(TimePoint now) {
    if (open_ == 1) Watch(now);
    // Of those that were to be closed one may still be full.
    while (open_ + 1 < most_ && open_ < loads_.size() && loads_[open_].requests >= streams_each_) {
      ++open_;
    }
    if (open_ == loads_.size()) loads_.emplace_back();
    if (loads_[open_].requests == 0) loads_[open_].connected = false;
    return open_++;
  }

  void Watch(TimePoint now) {
    close_at_ = now + kCloseAfter;
    most_streams_ = requests_ - waiting_;
    most_bytes_ = bytes_;
  }

  const std::size_t most_;
  const std::size_t streams_each_;
  std::vector<Load> loads_;  // of the first `open_` channels, and of those that were open before
  std::size_t open_ = 1;
  std::size_t requests_ = 0;
  std::size_t bytes_ = 0;
  std::size_t waiting_ = 0;  // of these
  std::size_t useful_ = 0;   // when the last one was sent
  TimePoint close_at_;
  std::size_t most_streams_ = 0;  // in use, since CloseUnused()
  std::size_t most_bytes_ = 0;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISH_CHANNEL_LOADS_H_
