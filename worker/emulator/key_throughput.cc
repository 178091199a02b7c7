#include "worker/emulator/key_throughput.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace postbox::emulator {

double KeyThroughput::Level(const Bucket& bucket, absl::Time now) const {
  return std::min(rate_, bucket.level + rate_ * absl::ToDoubleSeconds(now - bucket.at));
}

absl::Status KeyThroughput::Take(const std::string& topic, const std::string& key, size_t bytes,
                                 int messages, absl::Time now) {
  if (rate_ <= 0 || key.empty()) return absl::OkStatus();
  if (buckets_.size() >= remove_at_) RemoveFull(now);
  Bucket& bucket = buckets_.try_emplace({topic, key}, Bucket{rate_, now}).first->second;
  bucket = {Level(bucket, now), now};
  const auto size = static_cast<double>(bytes);
  if (size > bucket.level && (messages > 1 || bucket.level < rate_)) {
    return absl::ResourceExhaustedError(absl::StrCat("the ordering key has exceeded ",
                                                     static_cast<int64_t>(rate_),
                                                     " bytes a second (ordering_key=", key, ")"));
  }
  bucket.level -= size;
  return absl::OkStatus();
}

void KeyThroughput::RemoveFull(absl::Time now) {
  for (auto at = buckets_.begin(); at != buckets_.end();) {
    at = Level(at->second, now) >= rate_ ? buckets_.erase(at) : std::next(at);
  }
  remove_at_ = std::max<size_t>(1024, buckets_.size() * 2);
}

}  // namespace postbox::emulator
