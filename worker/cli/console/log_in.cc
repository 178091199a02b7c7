#include "worker/cli/console/log_in.h"

#include <libpq-fe.h>

#include <string_view>
#include <utility>

namespace postbox::cli {
namespace {

constexpr puller::TransactionLimits kLimits{.read_only = true,
                                            .statement_timeout = std::chrono::seconds(10)};

void Append(std::string_view name, std::string_view value, std::string* dsn) {
  if (!dsn->empty()) *dsn += ' ';
  dsn->append(name).append("='");
  for (const char c : value) {
    if (c == '\'' || c == '\\') *dsn += '\\';
    *dsn += c;
  }
  *dsn += '\'';
}

// As libpq tells a connection string from the name of a database.
bool IsConnectionString(const std::string& dsn) {
  return dsn.find('=') != std::string::npos || dsn.starts_with("postgres://") ||
         dsn.starts_with("postgresql://");
}

std::shared_ptr<Session> Begin(std::unique_ptr<puller::Connection> connection, std::string* error) {
  const puller::QueryResult who = connection->Execute("SELECT session_user, postbox.is_operator()");
  if (who.ok()) return std::make_shared<Session>(who.text(0, 0), std::move(connection));
  const bool missing = who.sqlstate() == "3F000" || who.sqlstate() == "42883";
  *error = missing ? "the extension postbox is not installed in this database" : who.error();
  return nullptr;
}

}  // namespace

std::string DsnOf(const std::string& dsn, const std::string& role, const std::string& password,
                  std::string* error) {
  std::string changed;
  if (!dsn.empty() && !IsConnectionString(dsn)) {
    Append("dbname", dsn, &changed);
  } else {
    char* problem = nullptr;
    const std::unique_ptr<PQconninfoOption, void (*)(PQconninfoOption*)> options(
        PQconninfoParse(dsn.c_str(), &problem), PQconninfoFree);
    if (!options) {
      *error = problem != nullptr ? problem : "the connection string cannot be parsed";
      PQfreemem(problem);
      return "";
    }
    for (const auto* option = options.get(); option->keyword != nullptr; ++option) {
      const std::string_view name = option->keyword;
      if (option->val == nullptr || name == "user" || name == "password" || name == "passfile") {
        continue;
      }
      Append(name, option->val, &changed);
    }
  }
  Append("user", role, &changed);
  Append("password", password, &changed);
  return changed;
}

std::shared_ptr<Session> LogIn(const std::string& dsn, const std::string& role,
                               const std::string& password, int interrupt, std::string* error) {
  constexpr size_t kLongest = 1000;
  const bool valid = !role.empty() && !password.empty() && role.size() < kLongest &&
                     password.size() < kLongest && role.find('\0') == std::string::npos &&
                     password.find('\0') == std::string::npos;
  if (!valid) {
    *error = "the role or the password is missing, or is none";
    return nullptr;
  }
  const std::string changed = DsnOf(dsn, role, password, error);
  if (changed.empty()) return nullptr;
  auto connection = puller::Connection::Open(changed, "postbox console", kLimits, interrupt, error);
  if (!connection) return nullptr;
  if (!connection->used_password()) {
    *error =
        "the server has let the role in without asking for the password: pg_hba.conf must "
        "demand one (scram-sha-256) of connections from the console";
    return nullptr;
  }
  return Begin(std::move(connection), error);
}

std::shared_ptr<Session> LogInAsSelf(const std::string& dsn, int interrupt, std::string* error) {
  auto connection = puller::Connection::Open(dsn, "postbox console", kLimits, interrupt, error);
  return connection ? Begin(std::move(connection), error) : nullptr;
}

}  // namespace postbox::cli
