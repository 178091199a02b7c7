#include "worker/cli/audit/audit_repair.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace postbox::cli {
namespace {

using puller::Parameter;
using puller::QueryResult;

// Keys that one call publishes again.
constexpr size_t kMostKeys = 1'000;

enum class Way { kRepublish, kEmitAgain, kNone };

Way WayOf(const AuditFinding& finding, bool deletes) {
  if (finding.kind == "missing" || finding.kind == "skipped") return Way::kRepublish;
  if (finding.kind == "row_present") return deletes ? Way::kEmitAgain : Way::kNone;
  if (finding.kind == "row_newer") return Way::kNone;  // the next version is not above it
  return finding.kind.starts_with("row_") ? Way::kEmitAgain : Way::kNone;
}

std::string Advice(const std::string& kind) {
  static const std::map<std::string, std::string> kAdvice = {
      {"late", "none: wait until it arrives"},
      {"rejected", "none: remove the cause and run postbox.redrive_dead_letter"},
      {"parked", "none: see postbox.paused_keys of the reader"},
      {"parked_at_source", "none: see postbox.paused_keys of the source"},
      {"ghost", "none: no event was emitted; find out what published it"},
      {"repeated_version", "none: correct the versions that the application gives"},
      {"row_newer", "none: no event has this version; delete the row, and run the audit again"},
      {"row_present", "none: with --repair-deletes the delete is emitted again"}};
  const auto found = kAdvice.find(kind);
  return found == kAdvice.end() ? "none: look at both events" : found->second;
}

std::string Array(const std::vector<std::string>& texts) {
  std::string array = "{";
  for (const std::string& text : texts) {
    array += array.size() > 1 ? ",\"" : "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') array += '\\';
      array += c;
    }
    array += '"';
  }
  return array + "}";
}

// What came of publishing these keys again.
std::string Republish(SourceSide* source, const std::vector<std::string>& keys) {
  const QueryResult there =
      source->side().Ask("SELECT to_regproc('postbox.republish') IS NOT NULL");
  if (there.text(0, 0) != "t") return "failed: the source has no postbox.republish";
  const QueryResult done = source->side().TryChange(
      "SELECT FROM postbox.republish($1, keys => $2::text[])",
      {Parameter::Text(source->source().publication), Parameter::Text(Array(keys))});
  return done.ok() ? "its key is published again" : "failed: " + done.error();
}

void RepublishKeys(const AuditOptions& options, SourceSide* source,
                   const std::vector<AuditFinding*>& findings) {
  std::set<std::string> keys;
  for (const AuditFinding* finding : findings) keys.insert(finding->event.aggregate_id);
  std::map<std::string, std::string> results;
  std::vector<std::string> some;
  for (auto key = keys.begin(); key != keys.end();) {
    some.push_back(*key++);
    if (some.size() < kMostKeys && key != keys.end()) continue;
    const std::string result =
        options.execute ? Republish(source, some) : "would publish its key again";
    for (const std::string& one : some) results[one] = result;
    some.clear();
  }
  for (AuditFinding* finding : findings) finding->repair = results[finding->event.aggregate_id];
}

void EmitAgain(const AuditOptions& options, SourceSide* source,
               const std::vector<AuditFinding*>& findings) {
  std::map<std::string, std::string> results;  // one event may be that of several rows
  for (AuditFinding* finding : findings) {
    std::string& result = results[finding->event.id];
    if (result.empty() && !options.execute) {
      result = "would emit its last event again, with the next version";
    } else if (result.empty()) {
      const QueryResult done = source->side().TryChange(
          "SELECT postbox.audit_emit_again($1, $2::uuid)",
          {Parameter::Text(source->source().publication), Parameter::Text(finding->event.id)});
      result = done.ok() ? "its last event was emitted again, with version " + done.text(0, 0)
                         : "failed: " + done.error();
    }
    finding->repair = result;
  }
}

}  // namespace

void Repair(const AuditOptions& options, SourceSide* source, AuditReport* report) {
  std::vector<AuditFinding*> republished;
  std::vector<AuditFinding*> emitted;
  for (AuditFinding& finding : report->findings()) {
    switch (WayOf(finding, options.deletes)) {
      case Way::kRepublish:
        republished.push_back(&finding);
        break;
      case Way::kEmitAgain:
        emitted.push_back(&finding);
        break;
      case Way::kNone:
        finding.repair = Advice(finding.kind);
    }
  }
  RepublishKeys(options, source, republished);
  EmitAgain(options, source, emitted);
}

}  // namespace postbox::cli
