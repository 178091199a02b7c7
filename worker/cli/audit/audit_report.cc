#include "worker/cli/audit/audit_report.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>

#include "worker/cli/audit/event_comparison.h"

namespace postbox::cli {
namespace {

using Ordered = nlohmann::ordered_json;

// Texts of others may hold what a terminal would obey.
std::string Printable(const std::string& text) {
  std::string line = text;
  for (size_t i = 0; i < line.size(); ++i) {
    const auto byte = static_cast<unsigned char>(line[i]);
    // U+0080 to U+009F, which some terminals obey like ESC sequences.
    const bool c1 =
        byte == 0xC2 && i + 1 < line.size() && static_cast<unsigned char>(line[i + 1]) < 0xA0;
    if (byte < 0x20 || byte == 0x7F || c1) line[i] = ' ';
    if (c1) line[++i] = ' ';
  }
  return line;
}

std::string Subject(const AuditFinding& finding) { return TextOf(finding.event, finding.target); }

Ordered OrNull(const std::string& text) { return text.empty() ? Ordered() : Ordered(text); }

Ordered JsonOf(const AuditFinding& finding) {
  const SourceEvent& event = finding.event;
  return {{"kind", finding.kind},
          {"aggregate_type", OrNull(event.aggregate_type)},
          {"aggregate_id", OrNull(event.aggregate_id)},
          {"version", event.version ? Ordered(*event.version) : Ordered()},
          {"event_id", OrNull(event.id)},
          {"event_type", OrNull(event.event_type)},
          {"occurred_at", event.occurred > 0 ? Ordered(TimeText(event.occurred)) : Ordered()},
          {"target", OrNull(finding.target)},
          {"detail", OrNull(finding.detail)},
          {"repair", OrNull(finding.repair)}};
}

Ordered JsonOf(const Tally::Counts& counts) {
  Ordered object = Ordered::object();
  for (const auto& [kind, count] : counts) {
    if (count != 0) object[kind] = count;
  }
  return object;
}

std::string TextOf(const Tally::Counts& counts) {
  std::string text;
  for (const auto& [kind, count] : counts) {
    if (count == 0) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + kind;
  }
  return text.empty() ? "none" : text;
}

}  // namespace

std::string TextOf(const SourceEvent& event, const std::string& target) {
  std::string text = event.aggregate_type + " " + event.aggregate_id;
  if (event.version) text += ", version " + std::to_string(*event.version);
  if (!target.empty()) text += ", row of " + target;
  if (!event.id.empty()) text += ", event " + event.id;
  if (!event.event_type.empty()) text += " (" + event.event_type + ")";
  return text;
}

std::string TimeText(int64_t micros) {
  const auto seconds = static_cast<std::time_t>(micros / kMicrosPerSecond);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[64];
  std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ", parts.tm_year + 1900,
                parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                static_cast<int>(micros % kMicrosPerSecond));
  return text;
}

std::string AuditReport::Status() const {
  if (!findings_.empty()) return "differences";
  return obstacles_.empty() ? "clean" : "incomplete";
}

std::string AuditReport::Differences() const {
  Ordered object = Ordered::object();
  std::map<std::string, int64_t> counts;
  for (const AuditFinding& finding : findings_) ++counts[finding.kind];
  for (const auto& [kind, count] : counts) object[kind] = count;
  return object.dump();
}

std::string AuditReport::Detail() const {
  if (!findings_.empty()) {
    const AuditFinding& first = findings_.front();
    return first.kind + ": " + Subject(first) + (first.detail.empty() ? "" : ": " + first.detail);
  }
  return obstacles_.empty() ? "" : obstacles_.front().text;
}

std::string AuditReport::Text(size_t limit) const {
  std::string text = "source    " + source_ + "\nreader    " + reader_ + "\nevents    " +
                     std::to_string(events_) + (full_ ? "" : " since the last audit") + ": " +
                     TextOf(tally_.total()) + "\nrows      " + std::to_string(rows_) +
                     " compared\n";
  for (size_t i = 0; i < std::min(limit, findings_.size()); ++i) {
    const AuditFinding& finding = findings_[i];
    text += Printable("difference: " + finding.kind + ": " + Subject(finding) +
                      (finding.detail.empty() ? "" : ": " + finding.detail)) +
            "\n";
    if (!finding.repair.empty()) text += Printable("    repair: " + finding.repair) + "\n";
  }
  if (findings_.size() > limit) {
    text += "and " + std::to_string(findings_.size() - limit) + " more differences\n";
  }
  for (const Obstacle& obstacle : obstacles_) {
    text += Printable("incomplete: " + obstacle.code + ": " + obstacle.text) + "\n";
    if (!obstacle.remedy.empty()) text += Printable("    remedy: " + obstacle.remedy) + "\n";
  }
  for (const std::string& remark : remarks_) text += Printable("note: " + remark) + "\n";
  for (const std::string& what : not_compared_) text += Printable("not compared: " + what) + "\n";
  if (watermark_) text += "watermark " + TimeText(*watermark_) + "\n";
  return text + "status    " + Status() + "\n";
}

std::string AuditReport::Json(size_t limit) const {
  Ordered findings = Ordered::array();
  for (size_t i = 0; i < std::min(limit, findings_.size()); ++i) {
    findings.push_back(JsonOf(findings_[i]));
  }
  Ordered hours = Ordered::array();
  for (const auto& [hour, counts] : tally_.hours()) {
    const Ordered found = JsonOf(counts);
    if (found.empty()) continue;
    hours.push_back({{"from", hour > 0 ? Ordered(TimeText(hour)) : Ordered()}, {"events", found}});
  }
  Ordered obstacles = Ordered::array();
  for (const Obstacle& obstacle : obstacles_) {
    obstacles.push_back(
        {{"code", obstacle.code}, {"detail", obstacle.text}, {"remedy", OrNull(obstacle.remedy)}});
  }
  const Ordered all = {{"status", Status()},
                       {"source", source_},
                       {"reader", reader_},
                       {"full", full_},
                       {"events", events_},
                       {"rows", rows_},
                       {"counts", JsonOf(tally_.total())},
                       {"hours", std::move(hours)},
                       {"differences", Ordered::parse(Differences())},
                       {"findings", std::move(findings)},
                       {"incomplete", std::move(obstacles)},
                       {"notes", remarks_},
                       {"not_compared", not_compared_},
                       {"watermark", watermark_ ? Ordered(TimeText(*watermark_)) : Ordered()}};
  return all.dump(2, ' ', false, Ordered::error_handler_t::replace) + "\n";
}

}  // namespace postbox::cli
