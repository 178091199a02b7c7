#include "worker/cli/console/console.h"

#include <sys/stat.h>

#include <cstdio>

#include "worker/cli/base/open_place.h"
#include "worker/cli/console/console_server.h"
#include "worker/puller/log.h"
#include "worker/puller/signals.h"

namespace postbox::cli {
namespace {

constexpr std::chrono::seconds kLook{1};

// An error, or nothing.
std::string CheckTokenFile(const std::string& file) {
  struct stat status {};
  if (stat(file.c_str(), &status) != 0) return "the file of --token-file cannot be read";
  if (IsOpenToAll(file)) return "every user may read or change the file of --token-file";
  return ReadToken(file).empty() ? "the file of --token-file must have a token of 32 or more bytes"
                                 : "";
}

// A pipe that has been read once would make the next read wait without an end.
bool CanBeReadAgain(const std::string& file) {
  struct stat status {};
  return file != "-" && (stat(file.c_str(), &status) != 0 || S_ISREG(status.st_mode));
}

}  // namespace

int RunConsole(const ConsoleOptions& options) {
  if (!CanBeReadAgain(options.provision_file)) {
    return Fail("--provision-file cannot be standard input or a pipe", "name a file");
  }
  puller::Signals signals;
  puller::InitLog(options.log_format == "json");
  OwnAddress address;
  if (!ParseOwnAddress(options.listen, &address)) {
    return Fail("--listen is not HOST:PORT with an IP address",
                "use 127.0.0.1:PORT, or [::1]:PORT");
  }
  if (!address.loopback && !options.insecure_listen) {
    return Fail("--listen is not a loopback address, and the console does not speak TLS",
                "listen on 127.0.0.1 behind a proxy that speaks TLS, or an SSH tunnel; or pass "
                "--insecure-listen, where nothing but that proxy reaches the port");
  }
  PublicUrl url;
  if (!options.public_url.empty()) {
    const std::string problem = ParsePublicUrl(options.public_url, &url);
    if (!problem.empty()) return Fail("--public-url is not a URL: " + problem);
  }
  if (!options.token_file.empty()) {
    const std::string problem = CheckTokenFile(options.token_file);
    if (!problem.empty()) {
      return Fail(problem, "run openssl rand -hex 32 > FILE; chmod 600 FILE");
    }
  }
  ConsoleServer server(options, url, signals.end_fd());
  const int port = server.Listen(address);
  if (port < 0) return Fail("cannot listen on " + options.listen, "choose another port");
  std::printf("postbox console listening on http://%s:%d%s/\n",
              address.host.find(':') == std::string::npos ? address.host.c_str()
                                                          : ("[" + address.host + "]").c_str(),
              port, url.prefix.c_str());
  std::fflush(stdout);
  while (signals.Wait(kLook) != puller::Signals::kEnd) {
    server.EndOldSessions();
    puller::LogSums();
  }
  server.Stop();
  puller::LogSums(/*all=*/true);
  puller::FinishLog();
  if (puller::Connection::CallsLeft()) std::_Exit(0);
  return 0;
}

}  // namespace postbox::cli
