// How much is done in one step: half as much after a step that took too long, twice as much after
// one that had time left.
#ifndef POSTBOX_WORKER_PUBLISHER_POLICY_ADAPTIVE_SIZE_H_
#define POSTBOX_WORKER_PUBLISHER_POLICY_ADAPTIVE_SIZE_H_

#include <algorithm>
#include <cstddef>

namespace postbox::publisher {

class AdaptiveSize {
 public:
  // `least` <= `most`. It begins with the most.
  constexpr AdaptiveSize(std::size_t least, std::size_t most)
      : least_(least), most_(most), size_(most) {}

  constexpr std::size_t value() const { return size_; }
  constexpr bool IsLeast() const { return size_ == least_; }

  // A step of so many took too long. It may have been a smaller one than value().
  constexpr void Shrink(std::size_t done) { size_ = std::clamp(done / 2, least_, size_); }
  constexpr void Shrink() { Shrink(size_); }
  constexpr void Grow() { size_ = std::min(size_ * 2, most_); }
  // A step of so many was quick. Of a smaller one that says nothing.
  constexpr void Grow(std::size_t done) {
    if (done >= size_) Grow();
  }

 private:
  std::size_t least_, most_, size_;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_POLICY_ADAPTIVE_SIZE_H_
