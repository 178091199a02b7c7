// An event as it was emitted, and as the inbox has it: what both databases answer to
// `postbox audit` (sql/install/functions/80_audit.sql). Times are microseconds since 1970, by the
// clock of the database that has them.
#ifndef POSTBOX_WORKER_CLI_AUDIT_AUDIT_EVENT_H_
#define POSTBOX_WORKER_CLI_AUDIT_AUDIT_EVENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace postbox::cli {

inline constexpr int64_t kMicrosPerSecond = 1'000'000;
inline constexpr char kFirstId[] = "00000000-0000-0000-0000-000000000000";

struct SourceEvent {
  std::string id;
  std::string aggregate_type;
  std::string aggregate_id;
  std::string event_type;
  std::optional<int64_t> version;
  int64_t occurred = 0;  // 0: not known
  int64_t bytes = 0;     // of the payload
  int64_t place = 0;     // in the outbox: the seq, or the time when it was published
  std::string state;     // published, pending, parked, discarded or expired
};

struct Arrival {
  std::string id;
  std::string aggregate_type;
  std::string aggregate_id;
  std::string event_type;
  std::optional<int64_t> version;
  int64_t received = 0;
  std::string outcome;
  std::string detail;  // who has discarded it, and why
};

using Arrivals = std::unordered_map<std::string, Arrival>;  // by id

// When the event was emitted, as far as it says so: the later of its time and that of its UUIDv7.
int64_t TimeOf(const std::string& id, int64_t occurred);

// An aggregate as one text.
inline std::string KeyOf(const SourceEvent& event) {
  return event.aggregate_type + '\0' + event.aggregate_id;
}

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_AUDIT_AUDIT_EVENT_H_
