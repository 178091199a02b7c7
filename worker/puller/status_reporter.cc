#include "worker/puller/status_reporter.h"

#include <utility>

#include "extension/rules/sqlstate_class.h"
#include "worker/puller/log.h"

namespace postbox::puller {
namespace {

// How late a report of an applier may be before the main thread takes it over.
constexpr std::chrono::milliseconds kLateReport{300};

}  // namespace

StatusNumbers StatusReporter::Take() {
  const auto now = std::chrono::steady_clock::now();
  StatusNumbers numbers = status_->Take(now);
  numbers.conflicts = gate_->conflicts(now);
  WorkQueue::Holding held = queue_->Held();
  numbers.in_hand = static_cast<int64_t>(held.in_hand);
  numbers.waiting = std::move(held.waiting);
  auto suspensions = health_->Suspensions();
  // The registry says what is paused.
  std::erase_if(suspensions, [](const auto& each) { return each.sqlstate == kPauseSqlstate; });
  for (size_t i = 0; i < suspensions.size() && i < kMostReportedTypes; ++i) {
    numbers.suspended_types.push_back(Cut(suspensions[i].type, kMostTypeBytes));
  }
  if (!suspensions.empty()) {
    const auto& first = suspensions.front();
    numbers.suspended_for_ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(now - first.since).count();
    numbers.suspended_error = Cut(first.sqlstate + ": " + first.error, PullStatus::kMaxErrorBytes);
  }
  return numbers;
}

void StatusReporter::Report(DatabaseInboxClient* inbox) {
  const StatusNumbers numbers = Take();
  const InboxResult stored = inbox->Report(subscription_, appliers_, &numbers);
  Note(stored.ok, stored.sqlstate, stored.error);
}

std::optional<StatusNumbers> StatusReporter::TakeLate() {
  const auto now = std::chrono::steady_clock::now();
  const auto due = status_->NextReport();
  if (due > now || now - due < kLateReport) return std::nullopt;
  return Take();
}

void StatusReporter::Stored(const QueryResult& result) {
  Note(result.ok(), result.sqlstate(), result.error());
}

void StatusReporter::Note(bool stored, const std::string& sqlstate, const std::string& error) {
  if (stored) return;
  status_->NotStored(sqlstate);
  if (IsTransientSqlstate(sqlstate)) return;
  LogRepeated("the status of the subscription is not shown in postbox.subscription_status",
              {{"subscription", subscription_}, {"sqlstate", sqlstate}, {"error", error}});
}

bool StatusReporter::ReportEnd(const std::vector<DatabaseInboxClient*>& connected, bool keep,
                               TimePoint until) {
  const StatusNumbers numbers = Take();
  for (DatabaseInboxClient* inbox : connected) {
    inbox->SetDeadline(until);
    if (inbox->Report(subscription_, appliers_, keep ? &numbers : nullptr).ok) return true;
  }
  return false;
}

}  // namespace postbox::puller
