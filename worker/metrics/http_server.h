// A small HTTP/1.1 server for machines that look after a process: scrapers and probes. It serves
// GET and HEAD of a few paths, each of which one function answers, and closes each connection after
// its answer.
//
//   - One thread serves all connections with poll(2), so a client costs a file descriptor and never
//     a thread. cpp-httplib has a thread for each connection, and its time-outs begin again with
//     every byte: as many clients that send one byte a second keep all others out.
//   - A client has kRequestTime for the whole request and kAnswerTime to take the answer. A request
//     has kMostRequestBytes; its body is not looked at.
//   - At most kMostConnections are served at a time. Others wait in the backlog of the socket; when
//     one has waited there, the connection that has been silent for longest, and for kPatience at
//     least, makes room for it.
//   - The functions run on the thread of the server, one at a time. One that hangs holds up every
//     answer.
#ifndef POSTBOX_WORKER_METRICS_HTTP_SERVER_H_
#define POSTBOX_WORKER_METRICS_HTTP_SERVER_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "worker/metrics/listen_address.h"

namespace postbox::metrics {

struct HttpAnswer {
  int status = 200;
  std::string body{};
  std::string type = "text/plain; charset=utf-8";
};

class HttpServer {
 public:
  using Clock = std::chrono::steady_clock;
  using Handler = std::function<HttpAnswer()>;
  static constexpr std::chrono::seconds kRequestTime{5};
  static constexpr std::chrono::seconds kAnswerTime{10};
  static constexpr std::chrono::seconds kPatience{1};
  static constexpr size_t kMostRequestBytes = 8192;
  static constexpr size_t kMostConnections = 128;

  // Listens, and starts the thread, which has the caller's signal mask. `handlers`: by path. On
  // failure returns null, and puts the reason into `error`.
  static std::unique_ptr<HttpServer> Start(const ListenAddress& address,
                                           std::map<std::string, Handler> handlers,
                                           std::string* error);
  ~HttpServer();  // closes all connections
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // With the port that the system has chosen.
  const ListenAddress& address() const { return address_; }

 private:
  struct Connection {
    int socket;
    Clock::time_point since;  // accepted
    Clock::time_point until;  // what it does now must be over
    std::string in{};
    std::string out{};
    size_t sent = 0;
    bool ending = false;  // all is sent, and the client has yet to close
  };
  using Connections = std::list<Connection>;

  explicit HttpServer(std::map<std::string, Handler> handlers) : handlers_(std::move(handlers)) {}
  bool Listen(const ListenAddress& address, std::string* error);
  void Serve();
  void Accept(Clock::time_point now);
  // How long poll() may wait, in milliseconds.
  int WaitTime(Clock::time_point now) const;
  void CloseLate(Clock::time_point now);
  // False: it is to be closed.
  bool Proceed(Connection* connection);
  bool Receive(Connection* connection);
  bool Send(Connection* connection);
  void Answer(std::string_view request, Connection* connection);
  HttpAnswer Handle(std::string_view method, std::string_view target) const;
  void Reply(const HttpAnswer& answer, bool head, Connection* connection) const;

  const std::map<std::string, Handler> handlers_;
  ListenAddress address_;
  int listener_ = -1;
  int stop_ = -1;                   // readable: the thread is to end
  Clock::time_point accept_after_;  // there were no file descriptors, or no room
  Connections connections_;         // in the order in which they were accepted
  std::thread thread_;
};

}  // namespace postbox::metrics

#endif  // POSTBOX_WORKER_METRICS_HTTP_SERVER_H_
