// See in_hand_logic.h.
#include "worker/publisher/source/table/in_hand_logic.h"

#include <unordered_map>

namespace postbox::publisher {

namespace {

// One set for each outbox that has a lane.
std::shared_ptr<SeqSet> SeqsOf(unsigned int outbox) {
  static std::unordered_map<unsigned int, std::weak_ptr<SeqSet>> sets;
  std::erase_if(sets, [](const auto& set) { return set.second.expired(); });
  std::shared_ptr<SeqSet> seqs = sets[outbox].lock();
  if (seqs == nullptr) sets[outbox] = seqs = std::make_shared<SeqSet>();
  return seqs;
}

}  // namespace

InHand::InHand(unsigned int outbox) : seqs_(SeqsOf(outbox)) {}

void InHand::BeginStep() {
  for (const SeqSet::Run& run : settled_) seqs_->Remove(run);
  settled_.clear();
  claimed_.clear();
}

void InHand::RollBack() {
  for (const SeqSet::Run& run : claimed_) seqs_->Remove(run);
  settled_.clear();
  claimed_.clear();
}

void InHand::Claimed(const std::vector<std::int64_t>& seqs) {
  claimed_ = SeqSet::RunsOf(seqs);
  for (const SeqSet::Run& run : claimed_) seqs_->Add(run);
}

void InHand::Settled(const std::vector<std::int64_t>& seqs) { settled_ = SeqSet::RunsOf(seqs); }

}  // namespace postbox::publisher
