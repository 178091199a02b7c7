// The HTTP of the console: what is checked before a request is answered, the headers of each
// answer, and the files of the page. README.md has the order of the checks.
//
// A client that sends or reads slowly holds a thread, for a few seconds at a time. There are
// kThreads of them; a request that has arrived takes one only while the database answers.
#ifndef POSTBOX_WORKER_CLI_CONSOLE_CONSOLE_SERVER_H_
#define POSTBOX_WORKER_CLI_CONSOLE_CONSOLE_SERVER_H_

#include <memory>
#include <string>

#include "worker/cli/console/console.h"
#include "worker/cli/console/request_origin.h"

namespace postbox::cli {

class ConsoleServer {
 public:
  // `interrupt`: see puller::Connection::Open().
  ConsoleServer(const ConsoleOptions& options, const PublicUrl& url, int interrupt);
  ~ConsoleServer();

  // Begins to serve. Returns the port, or -1.
  int Listen(const OwnAddress& address);
  void EndOldSessions();
  void Stop();

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

// Whether every user may read or change the file.
bool IsOpenToAll(const std::string& file);
// Without white space at its ends; empty if the file cannot be read, is open to all, or has no
// token that is long enough.
std::string ReadToken(const std::string& file);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_CONSOLE_CONSOLE_SERVER_H_
