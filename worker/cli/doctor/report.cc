#include "worker/cli/doctor/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace postbox::cli {
namespace {

int Rank(const std::string& status) {
  if (status == "error") return 0;
  return status == "warning" ? 1 : 2;
}

std::string Plural(size_t count, const std::string& word) {
  return std::to_string(count) + " " + word + (count == 1 ? "" : "s");
}

// Texts of others may hold what a terminal would obey.
std::string Printable(const std::string& text) {
  std::string line = text;
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return line;
}

}  // namespace

size_t Report::Count(const std::string& status) const {
  return static_cast<size_t>(
      std::count_if(findings_.begin(), findings_.end(),
                    [&](const Finding& finding) { return finding.status == status; }));
}

std::string Report::Worst() const {
  if (Count("error") > 0) return "error";
  return Count("warning") > 0 ? "warning" : "ok";
}

std::vector<Finding> Report::Sorted() const {
  std::vector<Finding> sorted = findings_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Finding& a, const Finding& b) {
    return Rank(a.status) < Rank(b.status);
  });
  return sorted;
}

std::string Report::Text() const {
  size_t width = 0;
  for (const Finding& finding : findings_) width = std::max(width, finding.check.size());
  std::string text;
  for (const Finding& finding : Sorted()) {
    std::string line = finding.status + std::string(9 - finding.status.size(), ' ') + finding.check;
    const bool more = !finding.subject.empty() || !finding.detail.empty();
    if (more) line += std::string(width + 2 - finding.check.size(), ' ') + finding.subject;
    if (!finding.subject.empty() && !finding.detail.empty()) line += ": ";
    text += Printable(line + finding.detail) + "\n";
    if (!finding.remedy.empty()) text += "         remedy: " + Printable(finding.remedy) + "\n";
  }
  return text + Plural(Count("error"), "error") + ", " + Plural(Count("warning"), "warning") +
         ", " + std::to_string(Count("ok")) + " ok\n";
}

std::string Report::Json() const {
  using Json = nlohmann::ordered_json;
  const auto optional = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  Json found = Json::array();
  for (const Finding& finding : Sorted()) {
    found.push_back({{"check", finding.check},
                     {"status", finding.status},
                     {"subject", optional(finding.subject)},
                     {"detail", optional(finding.detail)},
                     {"remedy", optional(finding.remedy)}});
  }
  const Json all = {{"status", Worst()}, {"findings", std::move(found)}};
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace postbox::cli
