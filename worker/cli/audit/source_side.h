// The database that emits: its publication and the events of the outbox.
#ifndef POSTBOX_WORKER_CLI_AUDIT_SOURCE_SIDE_H_
#define POSTBOX_WORKER_CLI_AUDIT_SOURCE_SIDE_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "worker/cli/audit/audit_event.h"
#include "worker/cli/audit/side.h"

namespace postbox::cli {

// A row of postbox.audit_source.
struct SourceState {
  std::string publication;
  std::string identity;
  bool is_log = false;
  int64_t now = 0;
  int64_t settled = 0;        // up to this place no event can appear any more
  int64_t upto = 0;           // the last place
  int64_t retained_from = 0;  // what was emitted later is still there
  int64_t created = 0;        // of the publication
  std::vector<int64_t> origins;
  std::set<std::string> aggregate_types;  // empty: all
  int64_t parked = 0;
  std::optional<int64_t> oldest;  // when the oldest one that is not published occurred
  std::string problem;            // why the backlog is not known, or has events that are not read
  History history;
};

// What an event carries: its bytes as PostgreSQL writes them, and a JSON object.
struct EventContent {
  std::string payload;
  std::optional<std::string> attributes;
};

class SourceSide {
 public:
  static constexpr int kPage = 10'000;
  // Content that is fetched at a time, if it is more than one event.
  static constexpr int64_t kMostBytes = 8'000'000;

  // `publication`: empty if it is the only one. Throws AuditFailure.
  SourceSide(const std::string& dsn, const std::string& publication);

  Side& side() { return side_; }
  const Side& side() const { return side_; }
  // As it was when the object was made, and as it is now.
  const SourceState& source() const { return source_; }
  SourceState Now() { return Describe(source_.publication); }

  // The events after a place, in order, as many as a page has.
  std::vector<SourceEvent> Page(int64_t origin, int64_t after, const std::string& after_id,
                                int64_t upto);
  // Those of them that are there.
  std::vector<SourceEvent> Events(const std::vector<std::string>& ids);
  // The same, of which only the ids are asked for.
  std::unordered_set<std::string> Known(const std::vector<std::string>& ids);
  // The last versions of the aggregates of these events that events of the types have; 0: none has.
  std::vector<int64_t> LastVersions(const std::vector<std::string>& types,
                                    const std::vector<SourceEvent>& events);
  // How many events from `first` on fit into kMostBytes; at least one.
  static size_t Fitting(const std::vector<SourceEvent>& events, size_t first);
  // In the order of the events; without a payload if an event is gone.
  std::vector<EventContent> Contents(const std::vector<SourceEvent>& events);

 private:
  SourceState Describe(const std::string& publication);

  Side side_;
  SourceState source_;
};

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_AUDIT_SOURCE_SIDE_H_
