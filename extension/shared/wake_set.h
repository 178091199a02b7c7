// Which outboxes of a database a wake-up is for: a set that may have a few more than were put in,
// and never one fewer. So a commit in one of many outboxes makes a worker look at that one, and
// what it costs does not depend on how many there are.
#ifndef POSTBOX_EXTENSION_SHARED_WAKE_SET_H_
#define POSTBOX_EXTENSION_SHARED_WAKE_SET_H_

#include <algorithm>
#include <array>
#include <cstdint>

namespace postbox {

class WakeSet {
 public:
  static constexpr std::size_t kWords = 16;
  using Words = std::array<std::uint32_t, kWords>;

  WakeSet() = default;
  explicit WakeSet(const Words& words) : words_(words) {}
  static WakeSet All() {
    WakeSet all;
    all.words_.fill(UINT32_MAX);
    return all;
  }

  void Add(std::uint32_t outbox) { words_[Bit(outbox) / 32] |= Mask(outbox); }
  void AddAll() { *this = All(); }
  bool Has(std::uint32_t outbox) const { return (words_[Bit(outbox) / 32] & Mask(outbox)) != 0; }
  bool empty() const {
    return std::all_of(words_.begin(), words_.end(), [](std::uint32_t word) { return word == 0; });
  }
  const Words& words() const { return words_; }

 private:
  // OIDs of outboxes that were made one after the other differ by about as much.
  static std::size_t Bit(std::uint32_t outbox) {
    constexpr std::uint32_t kGoldenRatio = 2654435769U;
    return (outbox * kGoldenRatio) >> 23;
  }
  static std::uint32_t Mask(std::uint32_t outbox) { return 1U << (Bit(outbox) % 32); }

  Words words_{};
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_SHARED_WAKE_SET_H_
