// The command line of the operator's subcommands: doctor, status, top, topics, subscriptions,
// publish, tail, seek, snapshot, provision, audit and console.
#ifndef POSTBOX_WORKER_CLI_ADMIN_COMMANDS_H_
#define POSTBOX_WORKER_CLI_ADMIN_COMMANDS_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace postbox::cli {

inline constexpr char kDsnHelp[] =
    "Connection string or URI of the database, as libpq reads it (default: PGHOST, PGDATABASE, "
    "PGUSER, PGPASSFILE, PGSERVICE and the other variables of libpq, which also complete it)";
inline constexpr char kEndpointHelp[] =
    "http://HOST:PORT (plain), https://HOST:PORT or HOST:PORT (TLS); default: postbox.endpoint of "
    "the database, else PUBSUB_EMULATOR_HOST, else Google";
inline constexpr char kProjectHelp[] =
    "Project that completes short names of topics and subscriptions (default: postbox.project_id "
    "of the database)";

// What --http and --listen accept; the error that CLI11 shows, or nothing.
std::string ListenAddressCheck(const std::string& text);

struct Command {
  const CLI::App* app;
  std::function<int()> run;  // returns the exit status
};

std::vector<Command> AddAdminCommands(CLI::App* app);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_ADMIN_COMMANDS_H_
