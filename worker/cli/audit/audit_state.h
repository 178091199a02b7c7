// What earlier audits of two databases have proven, in a file.
//
// The file is replaced as a whole: an audit that is killed leaves the old one. It belongs to one
// publication and one inbox; with others it is refused. What it proves holds for one scope, and as
// long as neither database goes back to an earlier moment.
#ifndef POSTBOX_WORKER_CLI_AUDIT_AUDIT_STATE_H_
#define POSTBOX_WORKER_CLI_AUDIT_AUDIT_STATE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/cli/audit/event_comparison.h"
#include "worker/cli/audit/row_comparison.h"
#include "worker/cli/audit/side.h"

namespace postbox::cli {

struct AuditState {
  std::string source;  // the identities of both
  std::string reader;
  std::string scope;  // what of them was compared
  History source_history;
  History reader_history;
  int64_t captured = 0;         // when it was stored, by the clock of the source
  int64_t place = 0;            // every event up to here is settled, or one of those below
  int64_t arrived = 0;          // rows of the inbox up to here were looked up at the source
  int64_t newest = 0;           // see EventComparison
  UnrecordedEvents unrecorded;  // as long as the outbox retains the last of them
  std::vector<UnsettledEvent> unsettled;
  std::vector<DoubtfulRow> rows;
  std::vector<Arrival> ghosts;
};

// Keeps other audits away from a state file. The lock is another file beside it, which stays: the
// state file itself is replaced.
class StateLock {
 public:
  // `path`: of the state file; empty: nothing is locked. Throws AuditFailure.
  explicit StateLock(const std::string& path);
  ~StateLock();
  StateLock(const StateLock&) = delete;
  StateLock& operator=(const StateLock&) = delete;

 private:
  int file_ = -1;
};

// Nothing if there is no such file. Throws AuditFailure if it cannot be read, or is of others.
std::optional<AuditState> LoadState(const std::string& path, const std::string& source,
                                    const std::string& reader);
// Throws AuditFailure.
void SaveState(const std::string& path, const AuditState& state);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_AUDIT_AUDIT_STATE_H_
