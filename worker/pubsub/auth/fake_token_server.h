// An HTTP server for tests, which answers as the test decides and keeps the requests.
#ifndef POSTBOX_WORKER_PUBSUB_AUTH_FAKE_TOKEN_SERVER_H_
#define POSTBOX_WORKER_PUBSUB_AUTH_FAKE_TOKEN_SERVER_H_

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace postbox::pubsub {

class FakeTokenServer {
 public:
  struct Answer {
    std::string body;
    int status = 200;
    std::string headers{};     // whole lines
    bool keep_silent = false;  // answers nothing until the client has gone
  };
  // `request` is all that was sent: the first line, the headers, the body.
  using Handler = std::function<Answer(const std::string& request)>;

  explicit FakeTokenServer(Handler handler) : handler_(std::move(handler)) {
    socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    bind(socket_, reinterpret_cast<sockaddr*>(&address), size);
    listen(socket_, 16);
    getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~FakeTokenServer() {
    shutdown(socket_, SHUT_RDWR);
    thread_.join();
    close(socket_);
  }
  FakeTokenServer(const FakeTokenServer&) = delete;
  FakeTokenServer& operator=(const FakeTokenServer&) = delete;

  std::string host() const { return "127.0.0.1:" + std::to_string(port_); }
  std::string url(const std::string& path) const { return "http://" + host() + path; }
  std::vector<std::string> requests() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return requests_;
  }

 private:
  void Serve() {
    for (int client = 0; (client = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
      Converse(client);
      close(client);
    }
  }

  void Converse(int client) {
    std::string request;
    char buffer[4096];
    while (!IsWhole(request)) {
      const ssize_t count = recv(client, buffer, sizeof buffer, 0);
      if (count <= 0) return;
      request.append(buffer, static_cast<std::size_t>(count));
    }
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      requests_.push_back(request);
    }
    const Answer answer = handler_(request);
    if (answer.keep_silent) {
      while (recv(client, buffer, sizeof buffer, 0) > 0) {
      }
      return;
    }
    const std::string text =
        "HTTP/1.1 " + std::to_string(answer.status) + " x\r\n" + answer.headers +
        "Connection: close\r\nContent-Length: " + std::to_string(answer.body.size()) + "\r\n\r\n" +
        answer.body;
    std::size_t sent = 0;
    while (sent < text.size()) {
      const ssize_t count = send(client, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return;
      sent += static_cast<std::size_t>(count);
    }
  }

  static bool IsWhole(const std::string& request) {
    const std::size_t end = request.find("\r\n\r\n");
    if (end == std::string::npos) return false;
    const std::size_t length = request.find("Content-Length: ");
    if (length == std::string::npos || length > end) return true;
    return request.size() >= end + 4 + std::stoul(request.substr(length + 16));
  }

  const Handler handler_;
  int socket_ = -1;
  int port_ = 0;
  std::mutex mutex_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_AUTH_FAKE_TOKEN_SERVER_H_
