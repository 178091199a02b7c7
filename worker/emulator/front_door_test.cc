#include "worker/emulator/front_door.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <ctime>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker/emulator/host_port.h"

namespace postbox::emulator {
namespace {

using std::chrono::milliseconds;

constexpr int kPatienceMs = 20'000;

class Client {
 public:
  explicit Client(int port, bool ipv6 = false)
      : fd_(socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_port = htons(static_cast<uint16_t>(port));
    four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_port = four.sin_port;
    six.sin6_addr = in6addr_loopback;
    connected_ = (ipv6 ? connect(fd_, reinterpret_cast<sockaddr*>(&six), sizeof six)
                       : connect(fd_, reinterpret_cast<sockaddr*>(&four), sizeof four)) == 0;
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  Client& Say(const std::string& text) {
    EXPECT_EQ(send(fd_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
    return *this;
  }
  void SayNothingMore() const { shutdown(fd_, SHUT_WR); }
  // Whether anything comes, an end too, within this time.
  bool Hears(int milliseconds) const {
    pollfd answer{fd_, POLLIN, 0};
    return poll(&answer, 1, milliseconds) == 1;
  }
  // Until the other side closes.
  std::string Answer() const {
    std::string text;
    char bytes[1024];
    ssize_t got = 0;
    while (Hears(kPatienceMs) && (got = recv(fd_, bytes, sizeof bytes, 0)) > 0) {
      text.append(bytes, static_cast<size_t>(got));
    }
    return text;
  }

 private:
  const int fd_;
  bool connected_ = false;
};

class FrontDoorTest : public ::testing::Test {
 protected:
  void Open(const std::string& host, int port = 0) {
    door_ = *FrontDoor::Listen(host, port);
    door_->Start([this](int fd) {
      const absl::MutexLock lock(&mu_);
      handed_over_.push_back(fd);
    });
  }
  ~FrontDoorTest() override {
    door_.reset();
    for (const int fd : handed_over_) close(fd);
  }
  // The first of them, or -1.
  int HandedOver() {
    const absl::MutexLock lock(&mu_);
    const auto some = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !handed_over_.empty(); };
    return mu_.AwaitWithTimeout(absl::Condition(&some), absl::Milliseconds(kPatienceMs))
               ? handed_over_.front()
               : -1;
  }
  std::string Ask(const std::string& request) {
    return Client(door_->port()).Say(request + " HTTP/1.1\r\nHost: x\r\n\r\n").Answer();
  }

  std::unique_ptr<FrontDoor> door_;
  absl::Mutex mu_;
  std::vector<int> handed_over_ ABSL_GUARDED_BY(mu_);
};

TEST_F(FrontDoorTest, GetOfTheRootSaysThatItIsThere) {
  Open("127.0.0.1");
  const std::string answer = Ask("GET /");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_TRUE(answer.ends_with("\r\nContent-Length: 3\r\nConnection: close\r\n\r\nOk\n")) << answer;
  EXPECT_TRUE(Ask("HEAD /").ends_with("\r\n\r\n"));
}

TEST_F(FrontDoorTest, OtherRequestsAreToldWhatThisIs) {
  Open("127.0.0.1");
  for (const char* request : {"GET /v1/projects", "POST /", "PUT /v1/projects/p/topics/t"}) {
    const std::string answer = Ask(request);
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 404 Not Found\r\n")) << answer;
    EXPECT_NE(answer.find("gRPC"), std::string::npos);
  }
  EXPECT_EQ(Client(door_->port()).Say("GET / IRC\r\n\r\n").Answer(), "");
  EXPECT_EQ(Client(door_->port()).Say(std::string(100'000, 'x')).Answer(), "");
}

TEST_F(FrontDoorTest, ARequestWithALongBodyIsAnsweredAndNotReset) {
  Open("127.0.0.1");
  for (const size_t bytes : {9'000, 3'000'000}) {
    Client client(door_->port());
    client.Say("POST /v1/projects HTTP/1.1\r\nHost: x\r\n\r\n").Say(std::string(bytes, 'x'));
    const std::string answer = client.Answer();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 404 Not Found\r\n")) << bytes << ": " << answer;
  }
}

TEST_F(FrontDoorTest, HttpTwoIsHandedOverUnread) {
  Open("127.0.0.1");
  Client client(door_->port());
  client.Say("P");
  EXPECT_FALSE(client.Hears(50));
  client.Say("RI * HTTP/2.0");
  const int fd = HandedOver();
  ASSERT_GE(fd, 0);
  char bytes[14];
  EXPECT_EQ(recv(fd, bytes, sizeof bytes, MSG_WAITALL), 14);
  EXPECT_EQ(std::string(bytes, sizeof bytes), "PRI * HTTP/2.0");
}

TEST_F(FrontDoorTest, ARequestMayComeInPiecesAndCostsNothingMeanwhile) {
  Open("127.0.0.1");
  Client slow(door_->port());
  Client slower(door_->port());
  const Client silent(door_->port());
  slow.Say("GET / HTTP/1.1\r\nHo");
  slower.Say("P");
  const clock_t before = clock();
  EXPECT_FALSE(slow.Hears(500));
  EXPECT_LT(clock() - before, CLOCKS_PER_SEC / 5) << "of the processor";
  EXPECT_TRUE(slow.Say("st: x\r\n\r\n").Answer().starts_with("HTTP/1.1 200 OK"));
  EXPECT_TRUE(slower.Say("OST / HTTP/1.1\r\n\r\n").Answer().starts_with("HTTP/1.1 404"));
  EXPECT_FALSE(silent.Hears(0));
}

TEST_F(FrontDoorTest, AClientThatStopsInTheMiddleIsClosed) {
  Open("127.0.0.1");
  for (const char* part : {"", "P", "PR", "GET / HTTP"}) {
    Client client(door_->port());
    client.Say(part).SayNothingMore();
    EXPECT_EQ(client.Answer(), "") << part;
  }
  Client whole(door_->port());
  whole.Say("GET / HTTP/1.1\r\n\r\n").SayNothingMore();
  EXPECT_TRUE(whole.Answer().starts_with("HTTP/1.1 200 OK"));
}

TEST_F(FrontDoorTest, ManyWhoSayNothingKeepNobodyOut) {
  Open("127.0.0.1");
  std::vector<std::unique_ptr<Client>> silent;
  for (size_t i = 0; i < FrontDoor::kMostWaiting + 10; ++i) {
    silent.push_back(std::make_unique<Client>(door_->port()));
    if (!silent.back()->connected()) GTEST_SKIP() << "too few descriptors";
  }
  EXPECT_TRUE(Ask("GET /").starts_with("HTTP/1.1 200 OK"));
  EXPECT_EQ(silent.front()->Answer(), "") << "the first is closed";
  EXPECT_FALSE(silent.back()->Hears(0));
}

TEST_F(FrontDoorTest, AHostMayBeAnAddressOfIpv6OrHaveSeveralAddresses) {
  if (!FrontDoor::Listen("::1", 0).ok()) GTEST_SKIP() << "no IPv6 here";
  Open("::1");
  EXPECT_TRUE(Client(door_->port(), true).connected());
  EXPECT_FALSE(Client(door_->port()).connected());
  Open("0.0.0.0");
  EXPECT_TRUE(Client(door_->port(), true).connected());
  EXPECT_TRUE(Client(door_->port()).connected());
  Open("localhost");
  EXPECT_TRUE(Client(door_->port()).connected());
}

TEST_F(FrontDoorTest, APortThatIsTakenOrAHostThatIsNotHereIsUnavailable) {
  Open("127.0.0.1");
  for (const auto& [host, port] : {std::pair<const char*, int>("127.0.0.1", door_->port()),
                                   {"192.0.2.1", 0},
                                   {"no.such.host.invalid", 0}}) {
    const auto status = FrontDoor::Listen(host, port).status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << host;
    EXPECT_TRUE(
        std::string(status.message()).starts_with("cannot listen on " + HostPort(host, port)))
        << status;
  }
}

TEST(HostPortTest, AnAddressOfIpv6StandsInBrackets) {
  EXPECT_EQ(HostPort(WithoutBrackets("::1"), 8085), "[::1]:8085");
  EXPECT_EQ(HostPort(WithoutBrackets("[::1]"), 8085), "[::1]:8085");
  EXPECT_EQ(HostPort(WithoutBrackets("localhost"), 8085), "localhost:8085");
}

}  // namespace
}  // namespace postbox::emulator
