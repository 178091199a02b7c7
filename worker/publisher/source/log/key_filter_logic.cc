#include "worker/publisher/source/log/key_filter_logic.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace postbox::publisher {
namespace {

constexpr std::size_t kBitsOfWord = 64;
constexpr std::size_t kBitsOfKey = 32;
constexpr std::size_t kLeastBits = std::size_t{1} << 16;
constexpr std::size_t kMostBits = std::size_t{1} << 26;
constexpr int kPlaces = 16;

}  // namespace

KeyFilter::KeyFilter(std::size_t keys) {
  const std::size_t wanted = std::min(keys, kMostBits / kBitsOfKey) * kBitsOfKey;
  const std::size_t bits = std::bit_ceil(std::clamp(wanted, kLeastBits, kMostBits));
  words_.resize(bits / kBitsOfWord);
  mask_ = bits - 1;
}

KeyFilter::Places KeyFilter::PlacesOf(std::string_view key) {
  const std::uint64_t hash = std::hash<std::string_view>()(key);
  return {hash, std::rotl(hash, 32) | 1};
}

void KeyFilter::Add(std::string_view key) {
  auto [place, step] = PlacesOf(key);
  for (int i = 0; i < kPlaces; ++i, place += step) {
    const std::uint64_t bit = place & mask_;
    words_[bit / kBitsOfWord] |= std::uint64_t{1} << (bit % kBitsOfWord);
  }
}

bool KeyFilter::MayHave(std::string_view key) const {
  auto [place, step] = PlacesOf(key);
  for (int i = 0; i < kPlaces; ++i, place += step) {
    const std::uint64_t bit = place & mask_;
    if ((words_[bit / kBitsOfWord] >> (bit % kBitsOfWord) & 1) == 0) return false;
  }
  return true;
}

}  // namespace postbox::publisher
