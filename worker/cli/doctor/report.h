// What `postbox doctor` has found, and how it is printed.
#ifndef POSTBOX_WORKER_CLI_DOCTOR_REPORT_H_
#define POSTBOX_WORKER_CLI_DOCTOR_REPORT_H_

#include <string>
#include <vector>

namespace postbox::cli {

// The columns of postbox.finding.
struct Finding {
  std::string check;
  std::string status;  // ok, warning or error
  std::string subject;
  std::string detail;
  std::string remedy;  // empty if the status is ok
};

class Report {
 public:
  void Ok(std::string check, std::string subject, std::string detail) {
    findings_.push_back({std::move(check), "ok", std::move(subject), std::move(detail), ""});
  }
  void Warn(std::string check, std::string subject, std::string detail, std::string remedy) {
    findings_.push_back(
        {std::move(check), "warning", std::move(subject), std::move(detail), std::move(remedy)});
  }
  void Error(std::string check, std::string subject, std::string detail, std::string remedy) {
    findings_.push_back(
        {std::move(check), "error", std::move(subject), std::move(detail), std::move(remedy)});
  }
  void Add(Finding finding) { findings_.push_back(std::move(finding)); }

  const std::vector<Finding>& findings() const { return findings_; }
  // The worst status of all: ok, warning or error.
  std::string Worst() const;
  // One line for each check, the worst first, and the remedy below; the last line counts them.
  std::string Text() const;
  // {"status": ..., "findings": [{"check": ..., "status": ..., ...}]}; what is empty is null.
  std::string Json() const;

 private:
  std::vector<Finding> Sorted() const;
  size_t Count(const std::string& status) const;

  std::vector<Finding> findings_;
};

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_DOCTOR_REPORT_H_
