// The limit of bytes that one ordering key may publish in a second, which Pub/Sub has and an
// emulator has if it is told so.
//
// Each (topic, ordering key) has a token bucket. It holds what may be published in one second, and
// fills at that rate. A request takes its encoded size out of the bucket. If the bucket holds less,
// the request is refused and nothing changes. A request with a single message is taken from a
// full bucket whatever its size, and leaves a debt. Without that a large message could never be
// published.
#ifndef POSTBOX_WORKER_EMULATOR_KEY_THROUGHPUT_H_
#define POSTBOX_WORKER_EMULATOR_KEY_THROUGHPUT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace postbox::emulator {

class KeyThroughput {
 public:
  // 0: no limit.
  explicit KeyThroughput(int64_t bytes_per_second) : rate_(static_cast<double>(bytes_per_second)) {}

  // RESOURCE_EXHAUSTED if the key has published too much lately. A message without a key is never
  // refused.
  absl::Status Take(const std::string& topic, const std::string& key, size_t bytes, int messages,
                    absl::Time now);

  size_t buckets() const { return buckets_.size(); }  // for tests

 private:
  struct Bucket {
    double level;
    absl::Time at;
  };
  using Key = std::pair<std::string, std::string>;  // topic, ordering key

  double Level(const Bucket& bucket, absl::Time now) const;
  // Removes the buckets that are full: a new one is full, too.
  void RemoveFull(absl::Time now);

  const double rate_;
  std::map<Key, Bucket> buckets_;
  size_t remove_at_ = 1024;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_KEY_THROUGHPUT_H_
