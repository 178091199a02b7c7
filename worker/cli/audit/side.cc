#include "worker/cli/audit/side.h"

#include <chrono>
#include <optional>
#include <utility>

#include "worker/cli/base/operator_session.h"

namespace postbox::cli {
namespace {

// A page of a long audit may wait behind other work of the server.
constexpr puller::TransactionLimits kWriting{.read_only = false,
                                             .statement_timeout = std::chrono::seconds(60)};

int64_t Now() {
  using Micros = std::chrono::microseconds;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<Micros>(now).count();
}

}  // namespace

Side::Side(std::string role, const std::string& dsn) : role_(std::move(role)) {
  std::string error;
  connection_ = OpenDatabase(dsn, "postbox audit", &error);
  if (!connection_) {
    throw AuditFailure({"no_connection", role_ + ": " + error, ConnectionRemedy(error)});
  }
  CheckExtension();
  MeasureClock();
}

void Side::CheckExtension() {
  const puller::QueryResult about =
      Ask("SELECT current_database(), to_regclass('postbox.audit') IS NOT NULL, "
          "EXISTS (SELECT FROM pg_extension WHERE extname = 'postbox')");
  database_ = about.text(0, 0);
  if (about.text(0, 1) == "t") return;
  const bool installed = about.text(0, 2) == "t";
  throw AuditFailure({"no_extension",
                      role_ + ": database " + database_ +
                          (installed ? " has a release of the extension without audits"
                                     : " does not have the extension"),
                      installed ? "run ALTER EXTENSION postbox UPDATE in it"
                                : "name the database of the " + role_ + " with --" + role_});
}

// The offset is that of the quickest of some looks.
void Side::MeasureClock() {
  for (int look = 0; look < 3; ++look) {
    const int64_t before = Now();
    const puller::QueryResult server = Ask("SELECT postbox.micros(clock_timestamp())");
    const int64_t after = Now();
    if (look > 0 && after - before >= 2 * clock_doubt_) continue;
    clock_doubt_ = (after - before + 1) / 2;
    clock_offset_ = server.integer(0, 0) - before - clock_doubt_;
  }
}

void Side::Throw(const puller::QueryResult& failed) const {
  const bool right = failed.sqlstate() == "42501";
  throw AuditFailure(
      {right ? "no_right" : "failed", role_ + ": " + failed.error(),
       right ? "grant SELECT on the table, or membership in postbox_operator, to the role; rows of "
               "projections need the rights of the owner of the inbox, or that membership"
             : "see the server log of the " + role_});
}

puller::QueryResult Side::Ask(const char* sql, const std::vector<puller::Parameter>& parameters) {
  puller::QueryResult result = connection_->Execute(sql, parameters);
  if (!result.ok()) Throw(result);
  return result;
}

puller::QueryResult Side::TryChange(const char* sql,
                                    const std::vector<puller::Parameter>& parameters) {
  return connection_->Execute(sql, parameters, &kWriting);
}

puller::QueryResult Side::Change(const char* sql,
                                 const std::vector<puller::Parameter>& parameters) {
  puller::QueryResult result = TryChange(sql, parameters);
  if (!result.ok()) Throw(result);
  return result;
}

puller::Parameter IdArray(const std::vector<std::string>& ids) {
  std::string array = "{";
  for (const std::string& id : ids) array += (array.size() > 1 ? "," : "") + id;
  return puller::Parameter::Text(array + "}");
}

}  // namespace postbox::cli
