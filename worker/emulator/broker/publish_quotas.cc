#include "worker/emulator/broker/publish_quotas.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace postbox::emulator {

double PublishQuotas::Buckets::Level(const Bucket& bucket, absl::Time now) const {
  return std::min(rate_, bucket.level + rate_ * absl::ToDoubleSeconds(now - bucket.at));
}

bool PublishQuotas::Buckets::Admit(const Name& name, size_t bytes, int messages, absl::Time now) {
  if (rate_ <= 0) return true;
  if (buckets_.size() >= remove_at_) RemoveFull(now);
  Bucket& bucket = buckets_.try_emplace(name, Bucket{rate_, now}).first->second;
  bucket = {Level(bucket, now), now};
  return static_cast<double>(bytes) <= bucket.level || (messages == 1 && bucket.level >= rate_);
}

void PublishQuotas::Buckets::Take(const Name& name, size_t bytes) {
  if (rate_ > 0) buckets_.at(name).level -= static_cast<double>(bytes);
}

absl::Status PublishQuotas::Buckets::Refusal(absl::string_view what, absl::string_view name) const {
  return absl::ResourceExhaustedError(absl::StrCat(what, " exceeded ", static_cast<int64_t>(rate_),
                                                   " bytes a second (", name, ")"));
}

void PublishQuotas::Buckets::RemoveFull(absl::Time now) {
  for (auto at = buckets_.begin(); at != buckets_.end();) {
    at = Level(at->second, now) >= rate_ ? buckets_.erase(at) : std::next(at);
  }
  remove_at_ = std::max<size_t>(1024, buckets_.size() * 2);
}

absl::Status PublishQuotas::Take(const std::string& topic, const std::string& key, size_t bytes,
                                 int messages, absl::Time now) {
  const Name of_all;
  const Name of_topic(topic, "");
  const Name of_key(topic, key);
  if (!all_.Admit(of_all, bytes, messages, now)) {
    return all_.Refusal("the publishers have", "all topics");
  }
  if (!topics_.Admit(of_topic, bytes, messages, now)) {
    return topics_.Refusal("the topic has", absl::StrCat("topic=", topic));
  }
  if (!key.empty() && !keys_.Admit(of_key, bytes, messages, now)) {
    return keys_.Refusal("the ordering key has", absl::StrCat("ordering_key=", key));
  }
  all_.Take(of_all, bytes);
  topics_.Take(of_topic, bytes);
  if (!key.empty()) keys_.Take(of_key, bytes);
  return absl::OkStatus();
}

size_t PublishQuotas::buckets() const { return all_.size() + topics_.size() + keys_.size(); }

}  // namespace postbox::emulator
