#include "worker/puller/batch_outcomes.h"

#include <spdlog/spdlog.h>

#include <map>

#include "worker/puller/log.h"

namespace postbox::puller {

std::vector<uint64_t> SettledHandles(const std::vector<Delivery>& batch,
                                     const std::vector<Disposition>& dispositions) {
  std::vector<uint64_t> settled;
  settled.reserve(batch.size());
  for (size_t i = 0; i < batch.size(); ++i) {
    if (dispositions[i].kind == Disposition::kSettled) settled.push_back(batch[i].message.handle);
  }
  return settled;
}

StatusNumbers CountOutcomes(const std::string& subscription, bool ordered,
                            const std::vector<Delivery>& batch,
                            const std::vector<Disposition>& dispositions) {
  StatusNumbers numbers;
  for (size_t i = 0; i < batch.size(); ++i) {
    if (dispositions[i].kind != Disposition::kSettled) continue;
    const std::string& outcome = dispositions[i].outcome;
    if (outcome == "duplicate") {
      ++numbers.duplicates;
    } else if (outcome == "stale") {
      ++numbers.stale;
      // A redelivery is a duplicate. So this event came after a newer one of its key.
      if (!ordered || batch[i].message.ordering_key.empty()) continue;
      ++numbers.out_of_order;
      LogRepeated("an older version came after a newer one of its key",
                  EventFields(subscription, batch[i]));
    } else if (outcome == "rejected") {
      ++numbers.dead_letters;
    } else if (outcome == "parked") {
      ++numbers.parked;
    } else {
      ++numbers.applied;
      if (outcome == "ignored") ++numbers.ignored;
    }
  }
  return numbers;
}

void LogApplied(const std::string& subscription, const std::vector<Delivery>& batch,
                const std::vector<Disposition>& dispositions,
                std::chrono::steady_clock::duration took) {
  if (!spdlog::should_log(spdlog::level::debug)) return;
  std::map<std::string, size_t> outcomes;
  for (const Disposition& disposition : dispositions) {
    ++outcomes[disposition.kind == Disposition::kSettled ? disposition.outcome : "failed"];
  }
  const auto took_us = std::chrono::duration_cast<std::chrono::microseconds>(took);
  LogDebug("batch applied", {{"subscription", subscription},
                             {"events", batch.size()},
                             {"outcomes", outcomes},
                             {"took_us", took_us.count()}});
  for (size_t i = 0; i < batch.size(); ++i) {
    if (dispositions[i].kind != Disposition::kSettled) continue;
    Fields fields = EventFields(subscription, batch[i]);
    fields["outcome"] = dispositions[i].outcome;
    LogDebug("event applied", fields);
  }
}

}  // namespace postbox::puller
