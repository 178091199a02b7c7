#include "worker/metrics/http_server.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <exception>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

namespace postbox::metrics {
namespace {

constexpr std::chrono::seconds kLinger{1};  // for the client to close, after its answer
constexpr std::chrono::seconds kNoFiles{1};
constexpr int kBacklog = 512;

const char* Reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

// The part up to the first blank, which is taken from `text`.
std::string_view Word(std::string_view* text) {
  const size_t length = std::min(text->find(' '), text->size());
  const std::string_view word = text->substr(0, length);
  text->remove_prefix(std::min(length + 1, text->size()));
  return word;
}

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

std::uint16_t BoundPort(int socket) {
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                           : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
}

// A socket that listens, or -1 with errno.
int ListeningSocket(const addrinfo& address) {
  const int made = socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (made < 0) return -1;
  const int on = 1;
  setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(made, address.ai_addr, address.ai_addrlen) == 0 && listen(made, kBacklog) == 0) {
    return made;
  }
  const int problem = errno;
  close(made);
  errno = problem;
  return -1;
}

}  // namespace

std::unique_ptr<HttpServer> HttpServer::Start(const ListenAddress& address,
                                              std::map<std::string, Handler> handlers,
                                              std::string* error) {
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(handlers)));
  if (!server->Listen(address, error)) return nullptr;
  server->stop_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (server->stop_ < 0) {
    *error = std::string("no event descriptor: ") + std::strerror(errno);
    return nullptr;
  }
  try {
    server->thread_ = std::thread([one = server.get()] { one->Serve(); });
  } catch (const std::system_error& problem) {
    *error = std::string("no thread can be started: ") + problem.what();
    return nullptr;
  }
  return server;
}

HttpServer::~HttpServer() {
  if (stop_ >= 0) eventfd_write(stop_, 1);
  if (thread_.joinable()) thread_.join();
  for (const Connection& connection : connections_) close(connection.socket);
  for (const int each : {listener_, stop_}) {
    if (each >= 0) close(each);
  }
}

bool HttpServer::Listen(const ListenAddress& address, std::string* error) {
  const std::string where = "cannot listen on " + FormatListenAddress(address) + ": ";
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address.port);
  if (const int problem = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found)) {
    *error = where + gai_strerror(problem);
    return false;
  }
  int problem = 0;
  for (const addrinfo* each = found; each != nullptr && listener_ < 0; each = each->ai_next) {
    listener_ = ListeningSocket(*each);
    if (listener_ < 0) problem = errno;
  }
  freeaddrinfo(found);
  if (listener_ < 0) {
    *error = where + std::strerror(problem);
    return false;
  }
  address_ = {address.host, BoundPort(listener_)};
  return true;
}

void HttpServer::Serve() {
  std::vector<pollfd> watched;
  while (true) {
    auto now = Clock::now();
    CloseLate(now);
    watched.clear();
    watched.push_back({.fd = stop_, .events = POLLIN, .revents = 0});
    // A negative descriptor is left out.
    watched.push_back({.fd = now < accept_after_ ? -1 : listener_, .events = POLLIN, .revents = 0});
    for (const Connection& each : connections_) {
      const bool sends = !each.out.empty() && !each.ending;
      watched.push_back({.fd = each.socket,
                         .events = static_cast<short>(sends ? POLLOUT : POLLIN),
                         .revents = 0});
    }
    if (poll(watched.data(), watched.size(), WaitTime(now)) < 0 && errno != EINTR) return;
    if (watched[0].revents != 0) return;
    auto it = connections_.begin();
    for (size_t i = 2; i < watched.size(); ++i) {
      // Of an error, recv() or send() says what it is.
      const bool keep = watched[i].revents == 0 || Proceed(&*it);
      if (!keep) close(it->socket);
      it = keep ? std::next(it) : connections_.erase(it);
    }
    if (watched[1].revents != 0) Accept(Clock::now());
  }
}

int HttpServer::WaitTime(Clock::time_point now) const {
  auto until = now + std::chrono::minutes(1);
  if (accept_after_ > now) until = std::min(until, accept_after_);
  for (const Connection& each : connections_) until = std::min(until, each.until);
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - now);
  return static_cast<int>(std::max<std::int64_t>(left.count(), 0)) + 1;
}

void HttpServer::CloseLate(Clock::time_point now) {
  for (auto it = connections_.begin(); it != connections_.end();) {
    if (now < it->until) {
      ++it;
      continue;
    }
    close(it->socket);
    it = connections_.erase(it);
  }
}

void HttpServer::Accept(Clock::time_point now) {
  while (true) {
    if (connections_.size() >= kMostConnections) {
      const auto silent =
          std::find_if(connections_.begin(), connections_.end(),
                       [](const Connection& each) { return each.out.empty() || each.ending; });
      if (silent == connections_.end() || now - silent->since < kPatience) {
        accept_after_ = now + kPatience / 10;
        return;
      }
      close(silent->socket);
      connections_.erase(silent);
    }
    const int socket = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0) {
      if (!WouldBlock() && errno != ECONNABORTED) accept_after_ = now + kNoFiles;
      return;
    }
    connections_.push_back({.socket = socket, .since = now, .until = now + kRequestTime});
  }
}

bool HttpServer::Proceed(Connection* connection) {
  if (connection->out.empty() || connection->ending) {
    if (!Receive(connection)) return false;
    if (connection->out.empty() || connection->ending) return true;
  }
  return Send(connection);
}

bool HttpServer::Receive(Connection* connection) {
  char part[4096];
  const ssize_t got = recv(connection->socket, part, sizeof(part), 0);
  if (got == 0) return false;
  if (got < 0) return WouldBlock();
  if (connection->ending) return true;  // what comes behind the request is dropped
  std::string& in = connection->in;
  in.append(part, static_cast<size_t>(got));
  const size_t end = std::min(in.find("\r\n\r\n"), in.find("\n\n"));
  if (end != std::string::npos && end <= kMostRequestBytes) {
    Answer(std::string_view(in).substr(0, end), connection);
  } else if (in.size() > kMostRequestBytes) {
    Reply({431, "the request is too large\n"}, /*head=*/false, connection);
  }
  return true;
}

void HttpServer::Answer(std::string_view request, Connection* connection) {
  std::string_view line = request.substr(0, request.find_first_of("\r\n"));
  const std::string_view method = Word(&line);
  const std::string_view target = Word(&line);
  if (!target.starts_with('/') || !line.starts_with("HTTP/1.")) {
    return Reply({400, "not a request of HTTP/1.1\n"}, /*head=*/false, connection);
  }
  const bool head = method == "HEAD";
  Reply(Handle(method, target.substr(0, target.find('?'))), head, connection);
}

HttpAnswer HttpServer::Handle(std::string_view method, std::string_view target) const {
  const auto handler = handlers_.find(std::string(target));
  if (handler == handlers_.end()) {
    std::string paths;
    for (const auto& [path, unused] : handlers_) paths += " " + path;
    return {404, "there is only" + paths + "\n"};
  }
  if (method != "GET" && method != "HEAD") return {405, "only GET and HEAD\n"};
  try {
    return handler->second();
  } catch (const std::exception& problem) {  // there may be no memory
    return {500, std::string(problem.what()) + "\n"};
  }
}

void HttpServer::Reply(const HttpAnswer& answer, bool head, Connection* connection) const {
  std::string& out = connection->out;
  out = "HTTP/1.1 " + std::to_string(answer.status) + " " + Reason(answer.status) +
        "\r\nContent-Type: " + answer.type +
        "\r\nContent-Length: " + std::to_string(answer.body.size()) +
        "\r\nConnection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n";
  if (answer.status == 405) out += "Allow: GET, HEAD\r\n";
  out += "\r\n";
  if (!head) out += answer.body;
  connection->until = Clock::now() + kAnswerTime;
}

bool HttpServer::Send(Connection* connection) {
  const std::string& out = connection->out;
  const ssize_t sent = send(connection->socket, out.data() + connection->sent,
                            out.size() - connection->sent, MSG_NOSIGNAL);
  if (sent < 0) return WouldBlock();
  connection->sent += static_cast<size_t>(sent);
  if (connection->sent < out.size()) return true;
  // To close while something is unread would make the client lose the answer.
  shutdown(connection->socket, SHUT_WR);
  connection->ending = true;
  connection->until = Clock::now() + kLinger;
  return true;
}

}  // namespace postbox::metrics
