// Which channel a request takes, and how many channels are open. Each is a connection of its own.
//
// A channel takes as many requests as Google's front ends take streams on a connection, and
// kMostBytes. The first one is always open; another is opened when all that are have no room for a
// request. A request goes to the channel of the last one of its key as long as that has room, else
// to the one with the fewest requests. If kCloseAfter passes in which fewer channels would have
// been enough, those with the highest numbers are not used any more, and are closed when nothing is
// in flight on them.
//
// Pure logic, without a clock.
#ifndef POSTBOX_WORKER_PUBSUB_CHANNEL_LOADS_H_
#define POSTBOX_WORKER_PUBSUB_CHANNEL_LOADS_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

namespace postbox::pubsub {

class ChannelLoads {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  static constexpr std::size_t kMostBytes = 4'000'000;
  static constexpr std::chrono::seconds kCloseAfter{60};

  ChannelLoads(int most, int requests_each)
      : most_(static_cast<std::size_t>(most)),
        requests_each_(static_cast<std::size_t>(requests_each)),
        loads_(1) {}

  // The channel of one more request. `before`: that of the last request of its key, or -1.
  int Take(int before, std::size_t bytes, TimePoint now) {
    auto channel = static_cast<std::size_t>(before);
    if (before < 0 || channel >= open_ || !HasRoom(channel, bytes)) channel = Choose(bytes, now);
    ++loads_[channel].requests;
    loads_[channel].bytes += bytes;
    most_requests_ = std::max(most_requests_, ++requests_);
    most_bytes_ = std::max(most_bytes_, bytes_ += bytes);
    return static_cast<int>(channel);
  }

  // The request was answered. Returns whether the channel is to be closed.
  bool Done(int channel, std::size_t bytes) {
    Load& load = loads_[static_cast<std::size_t>(channel)];
    --load.requests;
    load.bytes -= bytes;
    --requests_;
    bytes_ -= bytes;
    return static_cast<std::size_t>(channel) >= open_ && load.requests == 0;
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
    const std::size_t needed =
        std::max({std::size_t{1}, (most_requests_ + requests_each_ - 1) / requests_each_,
                  (most_bytes_ + kMostBytes - 1) / kMostBytes});
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
  };

  bool HasRoom(std::size_t channel, std::size_t bytes) const {
    const Load& load = loads_[channel];
    return load.requests == 0 ||
           (load.requests < requests_each_ && load.bytes + bytes <= kMostBytes);
  }

  std::size_t Choose(std::size_t bytes, TimePoint now) {
    std::size_t fewest = 0;
    bool has_room = HasRoom(0, bytes);
    for (std::size_t channel = 1; channel < open_; ++channel) {
      const bool room = HasRoom(channel, bytes);
      if (room < has_room) continue;
      if (room > has_room || loads_[channel].requests < loads_[fewest].requests) fewest = channel;
      has_room = room;
    }
    if (has_room || open_ == most_) return fewest;
    if (open_ == loads_.size()) loads_.emplace_back();
    if (loads_[open_].requests == 0) loads_[open_].connected = false;
    if (open_ == 1) Watch(now);
    return open_++;
  }

  void Watch(TimePoint now) {
    close_at_ = now + kCloseAfter;
    most_requests_ = requests_;
    most_bytes_ = bytes_;
  }

  const std::size_t most_;
  const std::size_t requests_each_;
  std::vector<Load> loads_;  // of the first `open_` channels, and of those that were open before
  std::size_t open_ = 1;
  std::size_t requests_ = 0;
  std::size_t bytes_ = 0;
  TimePoint close_at_;
  std::size_t most_requests_ = 0;  // since CloseUnused()
  std::size_t most_bytes_ = 0;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_CHANNEL_LOADS_H_
