#include "worker/cli/base/operator_session.h"

namespace postbox::cli {
namespace {

// No subcommand writes into the database, so each can be asked of a standby, too.
constexpr puller::TransactionLimits kLimits{.read_only = true,
                                            .statement_timeout = std::chrono::seconds(60)};

struct Remedy {
  const char* sign;  // a part of libpq's or the server's message
  const char* remedy;
};
constexpr Remedy kRemedies[] = {
    {"definition of service",
     "name a service that is defined in ~/.pg_service.conf or in the file that PGSERVICEFILE "
     "names"},
    {"service file", "set PGSERVICEFILE to the path of a service file"},
    {"no password supplied", "put the password into ~/.pgpass or the file that PGPASSFILE names"},
    {"password authentication failed",
     "correct the password in ~/.pgpass or the file that PGPASSFILE names, or the role in PGUSER"},
    {"no pg_hba.conf entry", "add a line for this role, database and address to pg_hba.conf"},
    {"Peer authentication failed",
     "run the command as the operating-system user of that name, or change the line in "
     "pg_hba.conf"},
    {"Ident authentication failed",
     "run the command as the operating-system user of that name, or change the line in "
     "pg_hba.conf"},
    {"role \"", "name a role that exists with PGUSER, or user=... in --dsn"},
    {"database \"", "name a database that exists with PGDATABASE, or dbname=... in --dsn"},
    {"too many", "raise max_connections, or end unused sessions"},
    {"remaining connection slots", "raise max_connections, or end unused sessions"},
    {"could not translate host name", "correct PGHOST or host=... in --dsn, or check DNS"},
    {"invalid connection option",
     "correct --dsn: it consists of connection parameters of libpq, or is a URI"},
    {"in connection info string",
     "correct --dsn: it has the form name=value name=value, or is a URI"},
    {"SSL", "check PGSSLMODE, PGSSLROOTCERT and the certificate of the server"},
    {"certificate", "check PGSSLMODE, PGSSLROOTCERT and the certificate of the server"},
};

}  // namespace

std::unique_ptr<puller::Connection> OpenDatabase(const std::string& dsn, const std::string& name,
                                                 std::string* error) {
  return puller::Connection::Open(dsn, name, kLimits, -1, error);
}

std::string ConnectionRemedy(const std::string& error) {
  for (const Remedy& one : kRemedies) {
    if (error.find(one.sign) != std::string::npos) return one.remedy;
  }
  return "check that the server runs there, and set --dsn, or PGHOST, PGPORT, PGDATABASE and "
         "PGUSER, or PGSERVICE";
}

std::string AskForPlace(puller::Connection* connection, PubSubPlace* place) {
  const puller::QueryResult told = connection->Execute(
      "SELECT coalesce(current_setting('postbox.project_id', true), ''), "
      "coalesce(current_setting('postbox.quota_project', true), ''), "
      "CASE WHEN pg_has_role('pg_read_all_settings', 'USAGE') "
      "THEN coalesce(current_setting('postbox.endpoint', true), '') END");
  if (!told.ok()) return told.error();
  if (place->project.empty()) place->project = told.text(0, 0);
  if (place->quota_project.empty()) place->quota_project = told.text(0, 1);
  if (!place->endpoint.empty()) return "";
  if (!told.null(0, 2)) {
    place->endpoint = told.text(0, 2);
    return "";
  }
  const puller::QueryResult endpoint = connection->Execute("SELECT postbox.puller_endpoint()");
  place->endpoint_known = endpoint.ok();
  if (endpoint.ok()) place->endpoint = endpoint.text(0, 0);
  return "";
}

}  // namespace postbox::cli
