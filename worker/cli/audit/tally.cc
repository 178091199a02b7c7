#include "worker/cli/audit/tally.h"

namespace postbox::cli {

void Tally::Add(const std::string& kind, int64_t occurred, int64_t count) {
  total_[kind] += count;
  int64_t hour = occurred > 0 ? occurred / kHour * kHour : 0;
  if (hours_.size() >= kMostHours && !hours_.contains(hour)) hour = 0;
  hours_[hour][kind] += count;
}

}  // namespace postbox::cli
