// `postbox console`: see README.md.
#ifndef POSTBOX_WORKER_CLI_CONSOLE_CONSOLE_H_
#define POSTBOX_WORKER_CLI_CONSOLE_CONSOLE_H_

#include <string>

#include "worker/cli/base/place_options.h"

namespace postbox::cli {

struct ConsoleOptions {
  std::string dsn;
  std::string listen = "127.0.0.1:8090";
  std::string public_url;  // empty: browsers use the address that it listens on
  std::string token_file;  // empty: no token
  bool allow_actions = false;
  bool broker = false;         // whether it calls Pub/Sub
  PlaceOptions place;          // where that is; its dsn is that of the console
  std::string provision_file;  // empty: what the database needs
  bool insecure_listen = false;
  int idle_seconds = 900;
  int most_sessions = 32;
  std::string log_format = "text";
};

// Returns the exit status.
int RunConsole(const ConsoleOptions& options);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_CONSOLE_CONSOLE_H_
