// `postbox status` and `postbox top`: publications, subscriptions and workers of a database on one
// screen, the worst first.
#ifndef POSTBOX_WORKER_CLI_ADMIN_SCREEN_H_
#define POSTBOX_WORKER_CLI_ADMIN_SCREEN_H_

#include <string>

namespace postbox::cli {

struct StatusOptions {
  std::string dsn;
  bool json = false;
  int interval = 2;  // seconds between two looks of `top`
};

// Prints it once. Returns 0, or 1 if the database cannot be asked.
int RunStatus(const StatusOptions& options);
// Shows it in a terminal until q or Ctrl-C, or a signal. Returns 0, or 1 after an error.
int RunTop(const StatusOptions& options);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_ADMIN_SCREEN_H_
