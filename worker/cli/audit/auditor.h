// One audit, from the first look at both databases to the report.
//
//   1. Where the source stands is read first, then where the reader stands: what the source has
//      published by then may still be on its way, and what it publishes later does not count.
//   2. What earlier audits left unsettled is looked at again.
//   3. The events of the outbox are read in order, page by page, each page is looked up in the
//      inbox, and the rows of its keys are compared. A long backlog of the source or of the
//      reader is left out, and a later audit begins with it.
//   4. Published events that are not there get the grace period, counted from now on by the clock
//      of this machine: no clocks of different machines are compared.
//   5. Rows that differ are compared again, and then the outbox is searched for later events of
//      their keys, which explain the difference.
//   6. What the inbox has received is looked up in the outbox.
//
// With a state file the next audit begins at `settled` (postbox.audit_source): up to there no event
// can appear any more, and each is settled or in the file. If a database went back to an earlier
// moment, or the scope is another one, everything is compared.
#ifndef POSTBOX_WORKER_CLI_AUDIT_AUDITOR_H_
#define POSTBOX_WORKER_CLI_AUDIT_AUDITOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "worker/cli/audit/audit.h"
#include "worker/cli/audit/audit_report.h"
#include "worker/cli/audit/audit_state.h"
#include "worker/cli/audit/event_comparison.h"
#include "worker/cli/audit/reader_side.h"
#include "worker/cli/audit/row_comparison.h"
#include "worker/cli/audit/source_side.h"

namespace postbox::cli {

class Auditor {
 public:
  // Both throw AuditFailure.
  Auditor(const AuditOptions& options, AuditReport* report);
  void Run();

  SourceSide& source() { return source_; }
  ReaderSide& reader() { return reader_; }

 private:
  // A place in the outbox.
  struct Place {
    int64_t place = 0;
    std::string id = kFirstId;
  };

  int64_t ToReader(int64_t source_time) const;
  int64_t ToSource(int64_t reader_time) const;
  int64_t ClockDoubt() const;
  EventComparison NewComparison() const;
  bool Takes(const SourceEvent& event) const;

  void LookAgain();
  void Scan();
  // False if it stopped because too much differs. `own`: it has the events of this cluster.
  bool ScanOrigin(int64_t origin, int64_t from, bool own);
  int64_t LastPlace() const;
  void TakePage(const std::vector<SourceEvent>& page);
  void CompareRows(const std::vector<SourceEvent>& events);
  void ThinDoubts();
  void WaitForArrivals();
  void SettleRows();
  void FindGhosts();
  void TakeArrivals(const std::vector<Arrival>& page,
                    const std::unordered_set<std::string>& emitted);
  void FindRepeatedVersions();
  void Conclude();
  void ReportEvents();
  void ReportUnrecorded();
  void Save();

  const AuditOptions& options_;
  AuditReport* const report_;
  const StateLock lock_;
  SourceSide source_;
  ReaderSide reader_;
  const std::optional<AuditState> before_;  // nothing: everything is compared
  int64_t since_ = 0;
  UnrecordedEvents unrecorded_;  // also those of earlier audits
  EventComparison events_;
  RowComparison rows_;
  Arrivals ghosts_;
  std::optional<Place> stopped_;
  int64_t compared_ = 0;
  int64_t arrived_ = 0;  // up to when arrivals were looked up, by the clock of the reader
};

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_AUDIT_AUDITOR_H_
