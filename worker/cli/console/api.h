// Which path of the API gives what. Each is for a session.
//
//   GET   session                who is logged in, and what is allowed
//   GET   overview, findings, parked-keys, dead-letters, dead-letters/count, dead-letter, event,
//         actions, and the lists of reads.h
//   POST  change, events, preview, all   (actions.h)
#ifndef POSTBOX_WORKER_CLI_CONSOLE_API_H_
#define POSTBOX_WORKER_CLI_CONSOLE_API_H_

#include <string>

#include "worker/cli/console/call.h"
#include "worker/cli/console/sources.h"

namespace postbox::cli {

// `path` is what stands behind the prefix and "api". A path that does not exist is 404.
Answer AnswerGet(Session* session, Sources* sources, const std::string& path,
                 const Arguments& arguments);
Answer AnswerPost(Session* session, Sources* sources, const std::string& path,
                  const JsonValue& order);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_CONSOLE_API_H_
