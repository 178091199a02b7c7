// The database that receives: its subscription, the rows of the inbox, and those of projections.
#ifndef POSTBOX_WORKER_CLI_AUDIT_READER_SIDE_H_
#define POSTBOX_WORKER_CLI_AUDIT_READER_SIDE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "worker/cli/audit/audit_event.h"
#include "worker/cli/audit/row_comparison.h"
#include "worker/cli/audit/side.h"
#include "worker/cli/audit/source_side.h"

namespace postbox::cli {

// A row of postbox.audit_reader.
struct ReaderState {
  std::string subscription;
  std::string identity;
  std::string inbox;  // its OID: the role need not see its schema
  int64_t now = 0;
  int64_t created = 0;    // of the inbox
  int64_t retention = 0;  // microseconds for which it keeps ids
  std::vector<std::string> shared_with;
  std::string puller;  // connected, not visible, or why events do not arrive
  std::map<std::string, std::vector<std::string>> targets;  // by the event types that they take
  std::map<std::string, std::string> waiting_types;         // held by the puller, and why
  History history;
};

class ReaderSide {
 public:
  static constexpr int kPage = 50'000;

  // `subscription`: empty if it is the only one. Throws AuditFailure.
  ReaderSide(const std::string& dsn, const std::string& subscription);

  Side& side() { return side_; }
  const Side& side() const { return side_; }
  // As it was when the object was made, and as it is now.
  const ReaderState& reader() const { return reader_; }
  ReaderState Now() { return Describe(reader_.subscription); }

  Arrivals Received(const std::vector<std::string>& ids);
  // The rows after a time, in order, as many as a page has.
  std::vector<Arrival> Page(int64_t after, const std::string& after_id, int64_t upto);
  // The rows of these events that differ. Events without content are left out.
  std::vector<ComparedRow> CompareRows(const std::vector<SourceEvent>& events,
                                       const std::vector<EventContent>& contents);

 private:
  ReaderState Describe(const std::string& subscription);

  Side side_;
  ReaderState reader_;
};

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_AUDIT_READER_SIDE_H_
