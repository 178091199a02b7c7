#include "worker/metrics/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace postbox::metrics {
namespace {

// A client that says what a test lets it say.
class Client {
 public:
  explicit Client(const HttpServer& server) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server.address().port);
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    const timeval time{.tv_sec = 20, .tv_usec = 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
    EXPECT_EQ(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Client() { close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool Say(const std::string& text) {
    return send(socket_, text.data(), text.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(text.size());
  }
  // All that comes until the server closes.
  std::string Rest() {
    std::string all;
    char part[4096];
    ssize_t got = 0;
    while ((got = recv(socket_, part, sizeof(part), 0)) > 0) {
      all.append(part, static_cast<size_t>(got));
    }
    return all;
  }
  std::string Ask(const std::string& request) {
    Say(request);
    return Rest();
  }

 private:
  const int socket_;
};

class HttpServerTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string error;
    server_ =
        HttpServer::Start({"127.0.0.1", 0},
                          {{"/metrics", [this] { return HttpAnswer{.body = body_}; }},
                           {"/livez", [] { return HttpAnswer{.status = 503, .body = "stuck\n"}; }}},
                          &error);
    ASSERT_NE(server_, nullptr) << error;
  }
  std::string Ask(const std::string& request) { return Client(*server_).Ask(request); }

  std::string body_ = "up 1\n";
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, GetHasTheBodyAndHeadHasItsLength) {
  const std::string get = Ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(get.starts_with("HTTP/1.1 200 OK\r\n")) << get;
  EXPECT_TRUE(get.ends_with("\r\n\r\nup 1\n")) << get;
  const std::string head = Ask("HEAD /metrics?x=1 HTTP/1.0\r\n\r\n");
  EXPECT_NE(head.find("Content-Length: 5\r\n"), std::string::npos) << head;
  EXPECT_TRUE(head.ends_with("\r\n\r\n")) << head;
}

TEST_F(HttpServerTest, OtherPathsAndMethodsAndFormsAreRefused) {
  EXPECT_TRUE(Ask("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
  EXPECT_TRUE(
      Ask("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc").starts_with("HTTP/1.1 405 "));
  EXPECT_TRUE(Ask("GET /livez HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 503 "));
  EXPECT_TRUE(Ask("nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
  EXPECT_TRUE(Ask("GET http://x/metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 400 "));
  EXPECT_TRUE(
      Ask("GET /metrics HTTP/1.1\r\nX: " + std::string(20000, 'x')).starts_with("HTTP/1.1 431 "));
}

TEST_F(HttpServerTest, ARequestMayComeInPieces) {
  Client client(*server_);
  for (const char* piece : {"GET /met", "rics HTTP/1.1\r", "\nHost: x\r\n\r", "\n"}) {
    EXPECT_TRUE(client.Say(piece));
    std::this_thread::yield();
  }
  EXPECT_TRUE(client.Rest().ends_with("up 1\n"));
}

TEST_F(HttpServerTest, AnAnswerLargerThanTheSocketTakesArrivesWhole) {
  body_.assign(8 << 20, 'x');
  EXPECT_GE(Ask("GET /metrics HTTP/1.1\r\n\r\n").size(), body_.size());
}

TEST_F(HttpServerTest, ClientsThatNeverFinishAreClosedAndKeepNobodyOut) {
  std::vector<std::unique_ptr<Client>> slow;
  for (size_t i = 0; i < 2 * HttpServer::kMostConnections; ++i) {
    slow.push_back(std::make_unique<Client>(*server_));
    slow.back()->Say("GET /met");
  }
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(Ask("GET /metrics HTTP/1.1\r\n\r\n").ends_with("up 1\n"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, HttpServer::kRequestTime);
  // A byte now and then gives no one more time.
  Client& last = *slow.back();
  while (last.Say("r") && std::chrono::steady_clock::now() - begin < std::chrono::seconds(15)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
}

TEST_F(HttpServerTest, APortThatIsTakenIsAnErrorThatNamesIt) {
  std::string error;
  EXPECT_EQ(HttpServer::Start(server_->address(), {}, &error), nullptr);
  EXPECT_EQ(error, "cannot listen on 127.0.0.1:" + std::to_string(server_->address().port) +
                       ": Address already in use");
}

TEST_F(HttpServerTest, TheEndDoesNotWaitForClients) {
  Client silent(*server_);
  const auto begin = std::chrono::steady_clock::now();
  server_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  EXPECT_EQ(silent.Rest(), "");
}

}  // namespace
}  // namespace postbox::metrics
