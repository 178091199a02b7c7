// What `postbox audit` has found, and how it is printed.
#ifndef POSTBOX_WORKER_CLI_AUDIT_AUDIT_REPORT_H_
#define POSTBOX_WORKER_CLI_AUDIT_AUDIT_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/cli/audit/audit_event.h"
#include "worker/cli/audit/audit_failure.h"
#include "worker/cli/audit/tally.h"

namespace postbox::cli {

struct AuditFinding {
  std::string kind;
  SourceEvent event;   // what is known of it
  std::string target;  // of a row
  std::string detail;
  std::string repair;  // what was done, or would be; empty: nothing was asked for
};

class AuditReport {
 public:
  void SetSides(std::string source, std::string reader) {
    source_ = std::move(source);
    reader_ = std::move(reader);
  }
  void SetScope(bool full, int64_t events, int64_t rows) {
    full_ = full;
    events_ = events;
    rows_ = rows;
  }
  void SetTally(const Tally& tally) { tally_ = tally; }
  void SetWatermark(int64_t micros) { watermark_ = micros; }
  void Count(const std::string& kind, int64_t occurred) { tally_.Add(kind, occurred); }
  void Add(AuditFinding finding) { findings_.push_back(std::move(finding)); }
  void Add(Obstacle obstacle) { obstacles_.push_back(std::move(obstacle)); }
  // What is to be known although it is no difference.
  void Remark(std::string text) { remarks_.push_back(std::move(text)); }
  // What an audit does not look at, without which it can still be clean.
  void NotCompared(std::string what) { not_compared_.push_back(std::move(what)); }
  std::vector<AuditFinding>& findings() { return findings_; }

  const std::string& source() const { return source_; }
  std::optional<int64_t> watermark() const { return watermark_; }
  // differences, incomplete or clean
  std::string Status() const;
  // The counts of differences by kind, as a JSON object.
  std::string Differences() const;
  // The first difference, or why the audit is incomplete; empty if it is clean.
  std::string Detail() const;
  // With so many findings at most.
  std::string Text(size_t limit) const;
  std::string Json(size_t limit) const;

 private:
  std::string source_;
  std::string reader_;
  bool full_ = true;
  int64_t events_ = 0;
  int64_t rows_ = 0;
  Tally tally_;
  std::optional<int64_t> watermark_;
  std::vector<AuditFinding> findings_;
  std::vector<Obstacle> obstacles_;
  std::vector<std::string> not_compared_;
  std::vector<std::string> remarks_;
};

// The event as a line says it.
std::string TextOf(const SourceEvent& event, const std::string& target = "");

// RFC 3339 in UTC.
std::string TimeText(int64_t micros);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_AUDIT_AUDIT_REPORT_H_
