// The rows of projections against the last event of each key.
//
// Events come page by page. Of each page the last event of an aggregate, for each target that takes
// its type, is compared with the row, if the inbox has applied it. What differs is in doubt until
// the pages end: a later event of the aggregate for that target decides instead. If many rows are
// in doubt, the outbox is asked for which of them it has a later event. Columns that the last event
// leaves out are not compared, and neither is a row of which no event is retained.
//
// Pure logic; the rows are compared in the reading database (postbox.audit_rows). Memory is bounded
// by kMostDoubts rows.
#ifndef POSTBOX_WORKER_CLI_AUDIT_ROW_COMPARISON_H_
#define POSTBOX_WORKER_CLI_AUDIT_ROW_COMPARISON_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "worker/cli/audit/audit_event.h"

namespace postbox::cli {

// A row of postbox.audit_rows.
struct ComparedRow {
  size_t number = 0;  // of the event
  std::string target;
  std::string problem;  // missing, older, newer, present, differs or unchecked
  int64_t stored_version = 0;
  std::string details;  // the columns that differ, or why the row was not compared
};

struct DoubtfulRow {
  SourceEvent event;
  ComparedRow found;
};

class RowComparison {
 public:
  static constexpr size_t kMostDoubts = 100'000;
  static constexpr size_t kCrowded = kMostDoubts / 4 * 3;
  static constexpr size_t kMostReasons = 20;

  // The targets that take events of a type.
  explicit RowComparison(std::map<std::string, std::vector<std::string>> targets)
      : targets_(std::move(targets)) {}

  // The rows that an earlier audit has left in doubt.
  void Resume(const std::vector<DoubtfulRow>& doubts);

  // The events of a page whose rows are to be compared: the last ones of their keys.
  std::vector<SourceEvent> Last(const std::vector<SourceEvent>& page, const Arrivals& arrivals);
  // What was found of some of them.
  void Take(const std::vector<SourceEvent>& events, const std::vector<ComparedRow>& found);

  // The events of the rows that are in doubt, to be compared again: they are in doubt no longer
  // until they are taken again.
  std::vector<SourceEvent> TakeDoubts();
  // A later event, which is not compared.
  void See(const SourceEvent& event);

  // Whether the outbox is to be asked now, and for what.
  bool crowded() const { return doubts_.size() >= crowded_at_; }
  std::map<std::string, std::vector<DoubtfulRow>> ByTarget() const;
  std::vector<std::string> TypesOf(const std::string& target) const;
  // There is a later event.
  void Drop(const DoubtfulRow& doubt);
  // It was asked.
  void Thinned();

  bool full() const { return doubts_.size() >= kMostDoubts; }
  int64_t compared() const { return compared_; }
  std::vector<DoubtfulRow> doubts() const;
  // Why rows were not compared; some of the reasons.
  const std::set<std::string>& reasons() const { return reasons_; }

 private:
  // The events of a page that are the last ones for a target and a key, by both.
  std::map<std::string, SourceEvent> last_;
  const std::map<std::string, std::vector<std::string>> targets_;
  std::map<std::string, DoubtfulRow> doubts_;  // by target and key
  size_t crowded_at_ = kCrowded;
  std::set<std::string> reasons_;
  int64_t compared_ = 0;
};

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_AUDIT_ROW_COMPARISON_H_
