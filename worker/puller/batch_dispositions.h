// What becomes of the deliveries of a batch that is being applied.
//
//   - Nothing of a key is applied behind an event of the key that is not settled: such a delivery
//     is `Behind`, and shares its fate.
//   - A delivery that is neither decided nor behind another one is `Open`: it is to be tried.
//
// No threads.
#ifndef POSTBOX_WORKER_PULLER_BATCH_DISPOSITIONS_H_
#define POSTBOX_WORKER_PULLER_BATCH_DISPOSITIONS_H_

#include <chrono>
#include <cstddef>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "worker/puller/key_queues.h"

namespace postbox::puller {

// What is to become of a delivery after its batch was applied.
struct Disposition {
  enum Kind {
    kSettled,     // acked
    kFailed,      // nacked after `delay`
    kAlone,       // to be applied again, in a separate batch; with a `failure`: to be recorded
    kDeadLetter,  // published to the dead-letter topic with `failure`, then acked
    kHeld,        // its type is suspended (consumer_health.h): it waits for the end of that
    kBehind,      // shares the fate of the first event of its key that is not settled
  };
  Kind kind = kBehind;
  std::string outcome{};   // of kSettled: what the inbox returned
  std::string sqlstate{};  // of one that has failed, if there is one; of kSettled: it was given up
  std::chrono::milliseconds delay{0};
  EventFailure failure{};
};

class BatchDispositions {
 public:
  // The deliveries of a key are in order in `batch`, which outlives the next Take.
  void Begin(const std::vector<Delivery>& batch) {
    batch_ = &batch;
    dispositions_.assign(batch.size(), Disposition());
    decided_.assign(batch.size(), false);
    first_failures_.clear();
  }
  // One disposition for each delivery.
  std::vector<Disposition> Take() { return std::move(dispositions_); }

  size_t size() const { return batch_->size(); }
  const Delivery& delivery(size_t i) const { return (*batch_)[i]; }
  bool Open(size_t i) const { return !decided_[i] && !Behind(i); }
  // An earlier delivery of the same key is not settled.
  bool Behind(size_t i) const {
    if (first_failures_.empty()) return false;
    auto it = first_failures_.find(delivery(i).queue_key());
    return it != first_failures_.end() && it->second < i;
  }

  // `sqlstate`: of the error for which it was given up.
  void Settle(size_t i, std::string outcome, std::string sqlstate = {}) {
    decided_[i] = true;
    dispositions_[i].kind = Disposition::kSettled;
    dispositions_[i].outcome = std::move(outcome);
    dispositions_[i].sqlstate = std::move(sqlstate);
  }
  // It is not settled.
  void Fail(size_t i, Disposition disposition) {
    decided_[i] = true;
    dispositions_[i] = std::move(disposition);
    auto [it, is_new] = first_failures_.try_emplace(delivery(i).queue_key(), i);
    if (!is_new && i < it->second) it->second = i;
  }

 private:
  const std::vector<Delivery>* batch_ = nullptr;
  std::vector<Disposition> dispositions_;
  std::vector<bool> decided_;
  std::unordered_map<std::string, size_t> first_failures_;  // by queue key: position in the batch
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_BATCH_DISPOSITIONS_H_
