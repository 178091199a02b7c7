// What a wake-up is for, the outboxes of a database or the rows that were applied: a set of numbers
// that may have a few more than were put in, and never one fewer. So a commit in one of many
// outboxes makes a worker look at that one, and what it costs does not depend on how many there
// are.
#ifndef POSTBOX_EXTENSION_SHARED_WAKE_SET_H_
#define POSTBOX_EXTENSION_SHARED_WAKE_SET_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace postbox {

class WakeSet {
 public:
  static constexpr std::size_t kWords = 16;
  static constexpr std::size_t kPlaces = kWords * 32;
  using Words = std::array<std::uint32_t, kWords>;

  WakeSet() = default;
  explicit WakeSet(const Words& words) : words_(words) {}
  static WakeSet All() {
    WakeSet all;
    all.words_.fill(UINT32_MAX);
    return all;
  }

  void Add(std::uint32_t number) { words_[PlaceOf(number) / 32] |= Mask(number); }
  void AddAll() { *this = All(); }
  bool Has(std::uint32_t number) const {
    return (words_[PlaceOf(number) / 32] & Mask(number)) != 0;
  }
  bool empty() const {
    return std::all_of(words_.begin(), words_.end(), [](std::uint32_t word) { return word == 0; });
  }
  const Words& words() const { return words_; }

  // Where a number stands, from 0 to kPlaces - 1. OIDs of outboxes that were made one after the
  // other differ by about as much.
  static std::size_t PlaceOf(std::uint32_t number) {
    constexpr std::uint32_t kGoldenRatio = 2654435769U;
    return (number * kGoldenRatio) >> 23;
  }
  // Calls `visit` with each place that is in the set.
  template <typename Visit>
  void ForEachPlace(const Visit& visit) const {
    for (std::size_t word = 0; word < kWords; ++word) {
      for (std::uint32_t left = words_[word]; left != 0; left &= left - 1) {
        visit(word * 32 + static_cast<std::size_t>(std::countr_zero(left)));
      }
    }
  }

 private:
  static std::uint32_t Mask(std::uint32_t number) { return 1U << (PlaceOf(number) % 32); }

  Words words_{};
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_SHARED_WAKE_SET_H_
