// A set of seqs that lie close together, as its runs of consecutive numbers.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_TABLE_SEQ_SET_LOGIC_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_TABLE_SEQ_SET_LOGIC_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace postbox::publisher {

class SeqSet {
 public:
  struct Run {
    std::int64_t first;
    std::int64_t last;
  };
  // The runs of seqs that are in order.
  static std::vector<Run> RunsOf(std::span<const std::int64_t> seqs);

  void Add(Run run);
  void Remove(Run run);
  void RemoveUpTo(std::int64_t seq);
  void Clear() { runs_.clear(); }

  bool Contains(std::int64_t seq) const { return RunOf(seq) != runs_.end(); }
  std::size_t runs() const { return runs_.size(); }
  // The last seq of the run with this one; the one before it if it is not in the set.
  std::int64_t EndOfRun(std::int64_t seq) const;
  // The first seq of the set from this one on; the greatest number if there is none.
  std::int64_t Next(std::int64_t seq) const;

 private:
  using Runs = std::map<std::int64_t, std::int64_t>;  // last -> first
  Runs::const_iterator RunOf(std::int64_t seq) const;

  Runs runs_;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_TABLE_SEQ_SET_LOGIC_H_
