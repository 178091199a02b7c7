#include "worker/publisher/credential_reports.h"

#include "extension/base/spi.h"
#include "worker/publisher/base/limited_log.h"
#include "worker/publisher/base/registration.h"
#include "worker/publisher/base/server_text.h"
#include "worker/publisher/base/transaction.h"

namespace postbox::publisher {
namespace {

constexpr int64 kLookMs = 1000;
constexpr int64 kFailedMs = 30'000;
// Tokens are renewed all the time. An end that is later by less is not worth a transaction, unless
// the one that is shown comes first.
constexpr int64 kRenewed = 5 * USECS_PER_MINUTE;

TimestampTz TimeOf(std::chrono::system_clock::time_point time) {
  const auto since_1970 =
      std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch());
  constexpr int64 kEpochDays = POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE;
  return since_1970.count() - kEpochDays * USECS_PER_DAY;
}

void AddTextOrNull(const std::string& text, Parameters* row) {
  if (text.empty()) {
    row->AddNull(TEXTOID);
  } else {
    row->AddText(text);
  }
}

}  // namespace

std::optional<CredentialReports::Report> CredentialReports::ReportOf(const Outlet& outlet) {
  if (!outlet.UsesCredentials()) return std::nullopt;
  Report report;
  if (outlet.client() != nullptr) {
    const pubsub::CredentialState state = outlet.client()->Credential();
    report.identity = ServerText(state.identity);
    if (state.valid_until.has_value()) report.valid_until = TimeOf(*state.valid_until);
    report.last_error = Shortened(ServerText(state.last_error), kMaxShownError);
    return report;
  }
  if (outlet.error().empty()) return std::nullopt;
  report.last_error = Shortened(ServerText(outlet.error()), kMaxShownError);
  return report;
}

bool CredentialReports::IsSame(const Report& report, const Report& shown, TimestampTz now) {
  if (report.identity != shown.identity || report.last_error != shown.last_error) return false;
  if (report.valid_until == shown.valid_until) return true;
  return report.valid_until != 0 && shown.valid_until > TimestampTzPlusMilliseconds(now, kLookMs) &&
         std::abs(report.valid_until - shown.valid_until) < kRenewed;
}

void CredentialReports::Look(const Outlets& outlets, TimestampTz now) {
  if (now < next_look_) return;
  next_look_ = TimestampTzPlusMilliseconds(now, kLookMs);
  Reports reports;
  bool same = written_.has_value();
  for (const auto& outlet : outlets) {
    std::optional<Report> report = ReportOf(*outlet);
    const Report* before = nullptr;
    if (written_.has_value()) {
      const auto found = written_->find(outlet->credential());
      if (found != written_->end()) before = &found->second;
    }
    if (!report.has_value()) {
      // A client that is just being replaced says nothing yet.
      if (before != nullptr && outlet->UsesCredentials()) {
        reports.emplace(outlet->credential(), *before);
      }
      continue;
    }
    if (before != nullptr && IsSame(*report, *before, now)) {
      report = *before;
    } else {
      report->since = now;
      same = false;
    }
    reports.emplace(outlet->credential(), *std::move(report));
  }
  if (same && reports.size() == written_->size()) return;
  try {
    InTransaction("postbox: reporting credentials", [&] { Write(reports); });
    written_ = std::move(reports);
  } catch (const PostgresError& error) {
    LeaveIfExtensionGone();
    next_look_ = TimestampTzPlusMilliseconds(now, kFailedMs);
    LogLimited("credential reports",
               {.level = WARNING,
                .message = "could not write postbox.credential_state: " + error.message});
  }
}

void CredentialReports::Write(const Reports& reports) {
  Parameters own;
  own.AddInt(identity().ordinal);
  Run("DELETE FROM postbox.credential_state WHERE worker OPERATOR(pg_catalog.=) $1", own);
  for (const auto& [credential, report] : reports) {
    Parameters row;
    row.AddText(credential).AddInt(identity().ordinal);
    AddTextOrNull(report.identity, &row);
    if (report.valid_until == 0) {
      row.AddNull(TIMESTAMPTZOID);
    } else {
      row.Add(TIMESTAMPTZOID, TimestampTzGetDatum(report.valid_until));
    }
    AddTextOrNull(report.last_error, &row);
    row.Add(TIMESTAMPTZOID, TimestampTzGetDatum(report.since));
    Run("INSERT INTO postbox.credential_state "
        "(credential, worker, identity, valid_until, last_error, since) "
        "VALUES ($1, $2, $3, $4, $5, $6)",
        row);
  }
}

}  // namespace postbox::publisher
