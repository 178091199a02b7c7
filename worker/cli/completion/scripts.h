// Scripts that make a shell complete the command line of `postbox`. They hold all that they offer,
// so that a key press runs no program and asks no server.
#ifndef POSTBOX_WORKER_CLI_COMPLETION_SCRIPTS_H_
#define POSTBOX_WORKER_CLI_COMPLETION_SCRIPTS_H_

#include <string>

#include "worker/cli/completion/words.h"

namespace postbox::cli {

// For bash 4.4 or later. It needs nothing of the package bash-completion.
std::string BashScript(const CommandWords& root);
// A file of $fpath; or read by `source`, after compinit.
std::string ZshScript(const CommandWords& root);
// For fish 3.0 or later.
std::string FishScript(const CommandWords& root);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_COMPLETION_SCRIPTS_H_
