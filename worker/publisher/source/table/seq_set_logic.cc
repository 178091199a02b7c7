// See seq_set_logic.h.
#include "worker/publisher/source/table/seq_set_logic.h"

#include <algorithm>
#include <limits>

namespace postbox::publisher {

std::vector<SeqSet::Run> SeqSet::RunsOf(std::span<const std::int64_t> seqs) {
  std::vector<Run> runs;
  for (const std::int64_t seq : seqs) {
    if (!runs.empty() && seq <= runs.back().last) continue;
    if (!runs.empty() && seq == runs.back().last + 1) {
      runs.back().last = seq;
    } else {
      runs.push_back({seq, seq});
    }
  }
  return runs;
}

void SeqSet::Add(Run run) {
  // The runs that it touches become one with it.
  auto it = runs_.lower_bound(run.first > std::numeric_limits<std::int64_t>::min() ? run.first - 1
                                                                                   : run.first);
  while (it != runs_.end() && it->second - 1 <= run.last) {
    run.first = std::min(run.first, it->second);
    run.last = std::max(run.last, it->first);
    it = runs_.erase(it);
  }
  runs_.emplace_hint(it, run.last, run.first);
}

void SeqSet::Remove(Run run) {
  auto it = runs_.lower_bound(run.first);
  while (it != runs_.end() && it->second <= run.last) {
    const Run old{it->second, it->first};
    if (old.last > run.last) {
      it->second = run.last + 1;
    } else {
      it = runs_.erase(it);
    }
    if (old.first < run.first) runs_.emplace(run.first - 1, old.first);
    if (old.last > run.last) return;
  }
}

void SeqSet::RemoveUpTo(std::int64_t seq) {
  runs_.erase(runs_.begin(), runs_.upper_bound(seq));
  if (!runs_.empty()) runs_.begin()->second = std::max(runs_.begin()->second, seq + 1);
}

SeqSet::Runs::const_iterator SeqSet::RunOf(std::int64_t seq) const {
  const auto it = runs_.lower_bound(seq);
  return it != runs_.end() && it->second <= seq ? it : runs_.end();
}

std::int64_t SeqSet::EndOfRun(std::int64_t seq) const {
  const auto it = RunOf(seq);
  return it == runs_.end() ? seq - 1 : it->first;
}

std::int64_t SeqSet::Next(std::int64_t seq) const {
  const auto it = runs_.lower_bound(seq);
  return it == runs_.end() ? std::numeric_limits<std::int64_t>::max() : std::max(it->second, seq);
}

}  // namespace postbox::publisher
