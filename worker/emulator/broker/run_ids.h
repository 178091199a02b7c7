// Numbers and names that this run of the emulator gives out. They begin at the microsecond of its
// start, so that they differ from those of an earlier run.
#ifndef POSTBOX_WORKER_EMULATOR_BROKER_RUN_IDS_H_
#define POSTBOX_WORKER_EMULATOR_BROKER_RUN_IDS_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace postbox::emulator {

class RunIds {
 public:
  explicit RunIds(absl::Time start)
      : first_(static_cast<uint64_t>(std::max<int64_t>(0, absl::ToUnixMicros(start)))),
        last_incarnation_(first_) {}

  // The order in which messages are taken. It goes on where an earlier run has ended.
  uint64_t NextSequence() { return ++last_sequence_; }
  uint64_t last_sequence() const { return last_sequence_; }
  void SkipTo(uint64_t sequence) { last_sequence_ = std::max(last_sequence_, sequence); }
  std::string MessageId(uint64_t sequence) const { return std::to_string(first_ + sequence); }

  // Of a subscription (ack_id.h).
  uint64_t NextIncarnation() { return ++last_incarnation_; }
  // Of a policy.
  std::string NextEtag() {
    return absl::StrCat(absl::Hex(first_ + ++last_etag_, absl::kZeroPad16));
  }
  // Of a resource that is created without a name, in the project of `neighbour`. `kind` is
  // "subscription" or "snapshot".
  std::string NextName(absl::string_view neighbour, absl::string_view kind) {
    const std::vector<absl::string_view> parts = absl::StrSplit(neighbour, '/');
    return absl::StrCat("projects/", parts[1], "/", kind, "s/", kind, "-",
                        absl::Hex(first_ + ++last_name_));
  }

 private:
  const uint64_t first_;
  uint64_t last_sequence_ = 0;
  uint64_t last_incarnation_;
  uint64_t last_name_ = 0;
  uint64_t last_etag_ = 0;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_BROKER_RUN_IDS_H_
