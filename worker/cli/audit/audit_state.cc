#include "worker/cli/audit/audit_state.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "worker/cli/audit/audit_failure.h"

namespace postbox::cli {
namespace {

using Json = nlohmann::json;
constexpr int kFormat = 1;

Json JsonOf(const SourceEvent& event) {
  return {{"id", event.id},
          {"aggregate_type", event.aggregate_type},
          {"aggregate_id", event.aggregate_id},
          {"event_type", event.event_type},
          {"version", event.version ? Json(*event.version) : Json()},
          {"occurred", event.occurred},
          {"bytes", event.bytes},
          {"place", event.place},
          {"state", event.state}};
}

Json JsonOf(const History& history) {
  return {{"timeline", history.timeline}, {"wal", history.wal}};
}

History HistoryOf(const Json& json) { return {json.at("timeline"), json.at("wal")}; }

UnrecordedEvents UnrecordedOf(const Json& json) { return {json.at("count"), json.at("last")}; }

std::optional<int64_t> Version(const Json& value) {
  if (value.is_null()) return std::nullopt;
  return value.get<int64_t>();
}

SourceEvent EventOf(const Json& json) {
  return {.id = json.at("id"),
          .aggregate_type = json.at("aggregate_type"),
          .aggregate_id = json.at("aggregate_id"),
          .event_type = json.at("event_type"),
          .version = Version(json.at("version")),
          .occurred = json.at("occurred"),
          .bytes = json.at("bytes"),
          .place = json.at("place"),
          .state = json.at("state")};
}

Json JsonOf(const AuditState& state) {
  Json unsettled = Json::array();
  for (const UnsettledEvent& one : state.unsettled) {
    unsettled.push_back({{"event", JsonOf(one.event)},
                         {"kind", one.kind},
                         {"detail", one.detail},
                         {"skipped", one.skipped}});
  }
  Json rows = Json::array();
  for (const DoubtfulRow& row : state.rows) {
    rows.push_back({{"event", JsonOf(row.event)}, {"target", row.found.target}});
  }
  Json ghosts = Json::array();
  for (const Arrival& ghost : state.ghosts) ghosts.push_back(ghost.id);
  return {{"format", kFormat},
          {"source", state.source},
          {"reader", state.reader},
          {"scope", state.scope},
          {"source_history", JsonOf(state.source_history)},
          {"reader_history", JsonOf(state.reader_history)},
          {"captured", state.captured},
          {"place", state.place},
          {"arrived", state.arrived},
          {"newest", state.newest},
          {"unrecorded", {{"count", state.unrecorded.count}, {"last", state.unrecorded.last}}},
          {"unsettled", std::move(unsettled)},
          {"rows", std::move(rows)},
          {"ghosts", std::move(ghosts)}};
}

AuditState StateOf(const Json& json) {
  AuditState state{.source = json.at("source"),
                   .reader = json.at("reader"),
                   .scope = json.at("scope"),
                   .source_history = HistoryOf(json.at("source_history")),
                   .reader_history = HistoryOf(json.at("reader_history")),
                   .captured = json.at("captured"),
                   .place = json.at("place"),
                   .arrived = json.at("arrived"),
                   .newest = json.at("newest"),
                   .unrecorded = UnrecordedOf(json.at("unrecorded")),
                   .unsettled = {},
                   .rows = {},
                   .ghosts = {}};
  for (const Json& one : json.at("unsettled")) {
    state.unsettled.push_back({.event = EventOf(one.at("event")),
                               .kind = one.at("kind"),
                               .detail = one.at("detail"),
                               .skipped = one.at("skipped"),
                               .certain = true});
  }
  for (const Json& row : json.at("rows")) {
    DoubtfulRow doubt{.event = EventOf(row.at("event")), .found = {}};
    doubt.found.target = row.at("target");
    state.rows.push_back(std::move(doubt));
  }
  for (const Json& id : json.at("ghosts")) {
    Arrival ghost;
    ghost.id = id;
    state.ghosts.push_back(std::move(ghost));
  }
  return state;
}

[[noreturn]] void Refuse(const std::string& path, const std::string& why) {
  throw AuditFailure({"bad_state", "state file " + path + " " + why,
                      "name another file with --state, or remove it: then everything is compared"});
}

[[noreturn]] void ThrowErrno(const std::string& path, const char* what) {
  throw AuditFailure(
      {"bad_state",
       "could not " + std::string(what) + " state file " + path + ": " + std::strerror(errno),
       "check the path and its permissions"});
}

}  // namespace

std::optional<AuditState> LoadState(const std::string& path, const std::string& source,
                                    const std::string& reader) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    if (errno == ENOENT) return std::nullopt;
    ThrowErrno(path, "read");
  }
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const Json json = Json::parse(text, nullptr, false);
  try {
    if (json.is_discarded() || json.at("format") != kFormat) Refuse(path, "has another format");
    AuditState state = StateOf(json);
    if (state.source != source) Refuse(path, "is that of another publication");
    if (state.reader != reader) Refuse(path, "is that of another inbox");
    return state;
  } catch (const Json::exception&) {
    Refuse(path, "has another format");
  }
}

StateLock::StateLock(const std::string& path) {
  if (path.empty()) return;
  const std::string name = path + ".lock";
  file_ = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file_ < 0) ThrowErrno(name, "create");
  if (flock(file_, LOCK_EX | LOCK_NB) == 0) return;
  const bool busy = errno == EWOULDBLOCK;
  close(file_);
  if (!busy) ThrowErrno(name, "lock");
  throw AuditFailure({"busy", "another audit is using state file " + path,
                      "wait until it has ended, or name another file with --state"});
}

StateLock::~StateLock() {
  if (file_ >= 0) close(file_);
}

void SaveState(const std::string& path, const AuditState& state) {
  const std::string text = JsonOf(state).dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  const std::string fresh = path + ".new";
  const int file = open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) ThrowErrno(fresh, "create");
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t part = write(file, text.data() + written, text.size() - written);
    if (part < 0 && errno != EINTR) break;
    if (part > 0) written += static_cast<size_t>(part);
  }
  const bool stored = written == text.size() && fsync(file) == 0;
  if (close(file) != 0 || !stored) ThrowErrno(fresh, "write");
  if (std::rename(fresh.c_str(), path.c_str()) != 0) ThrowErrno(path, "replace");
}

}  // namespace postbox::cli
