// A set of keys that takes little room and forgets nothing: it says for certain that a key is not
// in it, and rarely takes one for another (a Bloom filter).
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_KEY_FILTER_LOGIC_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_KEY_FILTER_LOGIC_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace postbox::publisher {

class KeyFilter {
 public:
  // It takes 4 bytes a key, 8 KiB at least and 8 MiB at most. So it takes one of 3,000,000 keys for
  // another; more if there are more than `keys` or than two million, with five million one of 400.
  explicit KeyFilter(std::size_t keys);

  void Add(std::string_view key);
  // False: the key was not added.
  bool MayHave(std::string_view key) const;

 private:
  // The bits of a key are at first, first + step, first + 2 * step ...
  struct Places {
    std::uint64_t first;
    std::uint64_t step;
  };
  static Places PlacesOf(std::string_view key);

  std::vector<std::uint64_t> words_;  // a power of two of them
  std::uint64_t mask_;                // of the number of a bit
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_KEY_FILTER_LOGIC_H_
