#include "worker/cli/audit/audit.h"

#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "worker/cli/audit/audit_failure.h"
#include "worker/cli/audit/audit_repair.h"
#include "worker/cli/audit/audit_report.h"
#include "worker/cli/audit/auditor.h"

namespace postbox::cli {
namespace {

using puller::Parameter;

void Record(const AuditReport& report, ReaderSide* reader) {
  std::optional<std::string> watermark;
  if (report.watermark()) watermark = TimeText(*report.watermark());
  std::optional<std::string> detail;
  if (!report.Detail().empty()) detail = report.Detail();
  reader->side().Change(
      "SELECT postbox.record_audit($1, $2, $3, $4::timestamptz, $5::jsonb, $6)",
      {Parameter::Text(reader->reader().subscription), Parameter::Text(report.source()),
       Parameter::Text(report.Status()), Parameter::Text(watermark),
       Parameter::Text(report.Differences()), Parameter::Text(detail)});
}

// What stands in the way is in the report, and so is what was found before.
void Compare(const AuditOptions& options, AuditReport* report) {
  std::unique_ptr<Auditor> auditor;
  try {
    auditor = std::make_unique<Auditor>(options, report);
    auditor->Run();
    if (options.repair) Repair(options, &auditor->source(), report);
  } catch (const AuditFailure& failure) {
    report->Add(failure.obstacle());
  }
  if (!options.record || !auditor) return;
  try {
    Record(*report, &auditor->reader());
  } catch (const AuditFailure& failure) {
    Obstacle obstacle = failure.obstacle();
    obstacle.text = "the result was not stored: " + obstacle.text;
    report->Add(std::move(obstacle));
  }
}

int StatusOf(const AuditReport& report) {
  const std::string status = report.Status();
  if (status == "differences") return kAuditDifferences;
  return status == "clean" ? kAuditClean : kAuditIncomplete;
}

}  // namespace

int RunAudit(const AuditOptions& options) {
  AuditReport report;
  Compare(options, &report);
  const auto limit = static_cast<size_t>(options.limit);
  const std::string text = options.json ? report.Json(limit) : report.Text(limit);
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    std::perror("postbox audit");
    return kAuditIncomplete;
  }
  return StatusOf(report);
}

}  // namespace postbox::cli
