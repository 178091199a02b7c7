// What `postbox audit --repair` does about the differences, or would do.
//
//   - An event that the reader does not have is published again, as it is.
//   - The last event of a key whose row is wrong is emitted again as a new event with the next
//     version: the reader has seen its id, so publishing it again would change nothing.
//   - Everything else is only reported, with what to do.
#ifndef POSTBOX_WORKER_CLI_AUDIT_AUDIT_REPAIR_H_
#define POSTBOX_WORKER_CLI_AUDIT_AUDIT_REPAIR_H_

#include "worker/cli/audit/audit.h"
#include "worker/cli/audit/audit_report.h"
#include "worker/cli/audit/source_side.h"

namespace postbox::cli {

// Sets `repair` of each finding.
void Repair(const AuditOptions& options, SourceSide* source, AuditReport* report);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_AUDIT_AUDIT_REPAIR_H_
