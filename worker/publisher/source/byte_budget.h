// How many bytes a claim may still take. Rows are counted before they are read, so that what is too
// much is never in memory.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_BYTE_BUDGET_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_BYTE_BUDGET_H_

#include <algorithm>
#include <cstddef>
#include <limits>

namespace postbox::publisher {

// This part of a budget is kept free for what may come after a backlog (ClaimWay::keeps_room).
// What is claimed comes in portions of about as much, so little more than this is empty at any
// time: the fewer events wait in the client, the fewer of a key go into a request.
constexpr std::size_t KeptPart(std::size_t all) { return std::max(all / 32, std::size_t{all > 1}); }

class ByteBudget {
 public:
  // All events together may have `bytes`; the first one may have `first`, if that is more.
  ByteBudget(std::size_t bytes, std::size_t first) : bytes_(bytes), first_(first) {}

  static ByteBudget Unlimited() {
    constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
    return {kMost, kMost};
  }

  std::size_t left() const { return bytes_ - std::min(used_, bytes_); }
  // How large the next event may be.
  std::size_t next() const { return taken_ ? left() : std::max(bytes_, first_); }

  std::size_t used() const { return used_; }

  void Take(std::size_t bytes) {
    used_ += bytes;
    taken_ = true;
  }
  // The next event has so many bytes, and is left where it is.
  void Refuse(std::size_t bytes) {
    refused_ = true;
    if (!taken_) needed_ = bytes;
  }
  bool refused() const { return refused_; }
  // How large the event is that was refused although nothing had been taken; 0 if there is none.
  std::size_t needed() const { return needed_; }

 private:
  std::size_t bytes_;
  std::size_t first_;
  std::size_t used_ = 0;
  std::size_t needed_ = 0;
  bool taken_ = false;
  bool refused_ = false;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_BYTE_BUDGET_H_
