// The rows of a table outbox that this worker has leased and not settled. All lanes of the outbox
// know them: also those of other publications, and of one that was altered and whose old lane still
// waits for results. So a row under this worker's token that is not among them is in no hand.
//
// A step is a transaction of one lane. What it has claimed is in hand at once, and what it has
// settled is until the next step begins: only then its COMMIT is known to have gone through.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_TABLE_IN_HAND_LOGIC_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_TABLE_IN_HAND_LOGIC_H_

#include <memory>
#include <vector>

#include "worker/publisher/source/table/seq_set_logic.h"

namespace postbox::publisher {

class InHand {
 public:
  // `outbox`: its OID. One thread.
  explicit InHand(unsigned int outbox);
  ~InHand() { BeginStep(); }
  InHand(const InHand&) = delete;
  InHand& operator=(const InHand&) = delete;

  // The last step has gone through.
  void BeginStep();
  // It has not.
  void RollBack();

  // Seqs in order.
  void Claimed(const std::vector<std::int64_t>& seqs);
  void Settled(const std::vector<std::int64_t>& seqs);
  const SeqSet& seqs() const { return *seqs_; }

 private:
  const std::shared_ptr<SeqSet> seqs_;
  std::vector<SeqSet::Run> claimed_, settled_;  // of this step
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_TABLE_IN_HAND_LOGIC_H_
