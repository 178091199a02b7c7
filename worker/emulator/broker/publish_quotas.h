// The bytes that may be published in a second: in all, to one topic, and with one ordering key of a
// topic. Pub/Sub has such limits; an emulator has those that it is told.
//
// Each of them has a token bucket. It holds what may be published in one second, and fills at that
// rate. A request takes its encoded size out of each of its buckets. If one holds less, the request
// is refused and nothing changes. A request with a single message is taken from a full bucket
// whatever its size, and leaves a debt. Without that a large message could never be published.
#ifndef POSTBOX_WORKER_EMULATOR_BROKER_PUBLISH_QUOTAS_H_
#define POSTBOX_WORKER_EMULATOR_BROKER_PUBLISH_QUOTAS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace postbox::emulator {

// In bytes a second; 0: no limit.
struct PublishRates {
  int64_t all = 0;
  int64_t topic = 0;
  int64_t key = 0;
};

class PublishQuotas {
 public:
  explicit PublishQuotas(const PublishRates& rates)
      : all_(rates.all), topics_(rates.topic), keys_(rates.key) {}

  // RESOURCE_EXHAUSTED if too much was published lately. The limit of a key is none for messages
  // without one.
  absl::Status Take(const std::string& topic, const std::string& key, size_t bytes, int messages,
                    absl::Time now);

  size_t buckets() const;  // for tests

 private:
  using Name = std::pair<std::string, std::string>;  // topic, ordering key

  // The buckets of one limit.
  class Buckets {
   public:
    explicit Buckets(int64_t rate) : rate_(static_cast<double>(rate)) {}

    bool Admit(const Name& name, size_t bytes, int messages, absl::Time now);
    void Take(const Name& name, size_t bytes);
    // `what` names who has published too much.
    absl::Status Refusal(absl::string_view what, absl::string_view name) const;
    size_t size() const { return buckets_.size(); }

   private:
    struct Bucket {
      double level;
      absl::Time at;
    };
    double Level(const Bucket& bucket, absl::Time now) const;
    // Removes the buckets that are full: a new one is full, too.
    void RemoveFull(absl::Time now);

    double rate_;
    std::map<Name, Bucket> buckets_;
    size_t remove_at_ = 1024;
  };

  Buckets all_;
  Buckets topics_;
  Buckets keys_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_BROKER_PUBLISH_QUOTAS_H_
