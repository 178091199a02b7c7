// `postbox audit`: compares what a publication has emitted with what a subscription has received
// and applied.
#ifndef POSTBOX_WORKER_CLI_AUDIT_AUDIT_H_
#define POSTBOX_WORKER_CLI_AUDIT_AUDIT_H_

#include <string>
#include <vector>

namespace postbox::cli {

struct AuditOptions {
  std::string source;  // libpq connection strings or URIs; PG* complete them
  std::string reader;
  std::string publication;               // empty: the only one
  std::string subscription;              // empty: the only one
  std::string state;                     // a file with what earlier audits have proven; empty: none
  bool full = false;                     // compare everything, although there is such a file
  std::string since;                     // leave out events that occurred before; empty: none
  std::vector<std::string> event_types;  // compare only these; empty: all
  int grace = 60;                        // seconds that a published event may take to arrive
  int limit = 100;                       // findings that are printed
  bool rows = true;                      // compare the rows of projections, too
  bool json = false;
  bool record = false;   // store the result in the reading database
  bool repair = false;   // say what a repair would do
  bool execute = false;  // and do it
  bool deletes = false;  // repair rows that should not be there, too
};

// Exit statuses, beside 2 for a wrong command line.
inline constexpr int kAuditClean = 0;
inline constexpr int kAuditIncomplete = 1;
inline constexpr int kAuditDifferences = 3;

// Prints the report on standard output.
int RunAudit(const AuditOptions& options);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_AUDIT_AUDIT_H_
