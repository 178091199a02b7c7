#include "worker/emulator/front_door.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "worker/emulator/host_port.h"

namespace postbox::emulator {
namespace {

using std::chrono::milliseconds;

// As long as gRPC waits for the first bytes of a connection.
constexpr std::chrono::seconds kSilence{120};
constexpr std::chrono::seconds kRequestTime{10};
constexpr std::size_t kMostRequestBytes = 8192;  // before its body
// For how long what follows an answered request is read, and how often in one go.
constexpr std::chrono::seconds kDrainTime{2};
constexpr int kDrainReads = 16;
// How soon a connection that has sent one or two bytes is looked at again. They stay unread, so it
// is ready all the time.
constexpr milliseconds kPause{20};
constexpr milliseconds kNoDescriptorPause{100};
constexpr std::string_view kHttp2{"PRI"};  // * HTTP/2.0
// Free ports that are tried, if a host has several addresses.
constexpr int kTries = 10;

struct Addresses {
  ~Addresses() {
    if (first != nullptr) freeaddrinfo(first);
  }
  addrinfo* first = nullptr;
};

void SetPort(sockaddr_storage* address, int port) {
  const in_port_t number = htons(static_cast<uint16_t>(port));
  if (address->ss_family == AF_INET) reinterpret_cast<sockaddr_in*>(address)->sin_port = number;
  if (address->ss_family == AF_INET6) reinterpret_cast<sockaddr_in6*>(address)->sin6_port = number;
}

int PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

// The descriptor, or -1 and errno.
int ListenAt(const addrinfo& at, int port, bool all_families) {
  sockaddr_storage address{};
  std::memcpy(&address, at.ai_addr, at.ai_addrlen);
  SetPort(&address, port);
  const int fd = socket(at.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int yes = 1;
  const int only = all_families ? 0 : 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (at.ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), at.ai_addrlen) == 0 &&
      listen(fd, SOMAXCONN) == 0) {
    return fd;
  }
  const int problem = errno;
  close(fd);
  errno = problem;
  return -1;
}

// All listeners at one port, or none and errno.
std::vector<int> ListenAtAll(const addrinfo* first, int port, bool all_families) {
  std::vector<int> listeners;
  int problem = EADDRNOTAVAIL;
  for (const addrinfo* at = first; at != nullptr; at = at->ai_next) {
    const int fd =
        ListenAt(*at, listeners.empty() ? port : PortOf(listeners.front()), all_families);
    if (fd >= 0) {
      listeners.push_back(fd);
      continue;
    }
    problem = errno;
    // The name may have addresses that this machine does not have.
    if (problem == EADDRNOTAVAIL || problem == EAFNOSUPPORT) continue;
    for (const int open : listeners) close(open);
    listeners.clear();
    break;
  }
  errno = problem;
  return listeners;
}

// Whether more may come after recv() has returned this, which is not a number of bytes.
bool MayCome(ssize_t got) {
  return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

// What a whole request is answered with.
std::string AnswerTo(std::string_view request) {
  const std::string_view line = request.substr(0, request.find_first_of("\r\n"));
  const bool head = line.starts_with("HEAD ");
  const bool asks = head || line.starts_with("GET ");
  const bool root = line.find(" / ") != std::string_view::npos;
  const std::string body = asks && root ? "Ok\n"
                                        : "This is the Pub/Sub emulator of Postbox, which serves "
                                          "gRPC. GET / is a health check.\n";
  return absl::StrCat("HTTP/1.1 ", asks && root ? "200 OK" : "404 Not Found",
                      "\r\nContent-Type: text/plain\r\nContent-Length: ", body.size(),
                      "\r\nConnection: close\r\n\r\n", head ? "" : body);
}

}  // namespace

absl::StatusOr<std::unique_ptr<FrontDoor>> FrontDoor::Listen(const std::string& host, int port) {
  // A wildcard is for both families, as it is for gRPC.
  const bool any = host == "0.0.0.0" || host == "::";
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  const std::string address = HostPort(host, port);
  for (const char* name : {any ? "::" : host.c_str(), host.c_str()}) {
    Addresses addresses;
    if (const int code = getaddrinfo(name, "0", &hints, &addresses.first); code != 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", address, ": ", gai_strerror(code)));
    }
    for (int i = 0; i < (port == 0 ? kTries : 1); ++i) {
      std::vector<int> listeners = ListenAtAll(addresses.first, port, any);
      if (listeners.empty()) continue;
      const int number = PortOf(listeners.front());
      return std::unique_ptr<FrontDoor>(new FrontDoor(std::move(listeners), number));
    }
    // Without IPv6 a wildcard is one of IPv4.
    if (!any || errno == EADDRINUSE) break;
  }
  return absl::UnavailableError(
      absl::StrCat("cannot listen on ", address, ": ", std::strerror(errno)));
}

FrontDoor::FrontDoor(std::vector<int> listeners, int port)
    : listeners_(std::move(listeners)),
      port_(port),
      stop_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

FrontDoor::~FrontDoor() {
  eventfd_write(stop_fd_, 1);
  if (thread_.joinable()) thread_.join();
  for (const Visitor& visitor : visitors_) close(visitor.fd);
  for (const int fd : listeners_) close(fd);
  close(stop_fd_);
}

void FrontDoor::Start(HandOver hand_over) {
  hand_over_ = std::move(hand_over);
  thread_ = std::thread([this] { Serve(); });
}

void FrontDoor::Serve() {
  std::vector<bool> ready;
  bool knocks = false;
  while (WaitForAny(&ready, &knocks)) {
    const auto now = Clock::now();
    std::vector<Visitor> staying;
    for (std::size_t i = 0; i < visitors_.size(); ++i) {
      Visitor& visitor = visitors_[i];
      const bool ended = visitor.pauses && ready[i];  // it says nothing more
      Next next = ready[i] || visitor.pauses ? Look(&visitor) : Next::kWait;
      if (next == Next::kWait && (ended || now >= visitor.until)) next = Next::kClose;
      if (next == Next::kClose) close(visitor.fd);
      if (next == Next::kWait) staying.push_back(std::move(visitor));
    }
    visitors_ = std::move(staying);
    if (knocks) Accept();
  }
}

bool FrontDoor::WaitForAny(std::vector<bool>* ready, bool* knocks) {
  const auto now = Clock::now();
  // Without a time, until something comes.
  auto wake_at = Clock::time_point::max();
  std::vector<pollfd> all = {{stop_fd_, POLLIN, 0}};
  const bool accepts = now >= accept_at_;
  if (!accepts) wake_at = accept_at_;
  for (const int fd : listeners_) all.push_back({accepts ? fd : -1, POLLIN, 0});
  for (const Visitor& visitor : visitors_) {
    all.push_back({visitor.fd, static_cast<short>(visitor.pauses ? POLLRDHUP : POLLIN), 0});
    wake_at = std::min(wake_at, visitor.pauses ? now + kPause : visitor.until);
  }
  int time = -1;
  if (wake_at != Clock::time_point::max()) {
    const auto left = std::chrono::ceil<milliseconds>(wake_at - now);
    time = static_cast<int>(std::max(left, milliseconds(0)).count());
  }
  const int count = poll(all.data(), all.size(), time);
  if (count < 0 && errno != EINTR) return false;
  const std::size_t doors = 1 + listeners_.size();
  *knocks = std::any_of(all.begin() + 1, all.begin() + static_cast<std::ptrdiff_t>(doors),
                        [](const pollfd& one) { return one.revents != 0; });
  ready->assign(visitors_.size(), false);
  for (std::size_t i = 0; i < visitors_.size(); ++i) (*ready)[i] = all[doors + i].revents != 0;
  return all.front().revents == 0;
}

void FrontDoor::Accept() {
  for (const int listener : listeners_) {
    while (true) {
      const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        const bool no_more = errno == EAGAIN || errno == EWOULDBLOCK;
        if (!no_more) accept_at_ = Clock::now() + kNoDescriptorPause;
        break;
      }
      const int yes = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
      Visitor visitor{.fd = fd, .until = Clock::now() + kSilence, .request = {}};
      // Most have said what they are already.
      const Next next = Look(&visitor);
      if (next == Next::kClose) close(fd);
      if (next == Next::kWait) visitors_.push_back(std::move(visitor));
      if (visitors_.size() > kMostWaiting) {
        close(visitors_.front().fd);
        visitors_.erase(visitors_.begin());
      }
    }
  }
}

FrontDoor::Next FrontDoor::Look(Visitor* visitor) {
  if (visitor->is_http) return Read(visitor);
  char first[kHttp2.size()];
  const ssize_t got = recv(visitor->fd, first, sizeof first, MSG_PEEK);
  if (got < 0) {
    visitor->pauses = false;
    return MayCome(got) ? Next::kWait : Next::kClose;
  }
  if (got == 0) return Next::kClose;
  const std::string_view begin(first, static_cast<std::size_t>(got));
  if (begin == kHttp2) {
    hand_over_(visitor->fd);
    return Next::kGone;
  }
  if (!visitor->pauses) visitor->until = Clock::now() + kRequestTime;
  visitor->pauses = kHttp2.starts_with(begin);
  if (visitor->pauses) return Next::kWait;
  visitor->is_http = true;
  return Read(visitor);
}

FrontDoor::Next FrontDoor::Read(Visitor* visitor) {
  if (visitor->answered) return Drain(*visitor);
  char bytes[2048];
  std::string& request = visitor->request;
  while (request.find("\r\n\r\n") == std::string::npos) {
    if (request.size() > kMostRequestBytes) return Next::kClose;
    const ssize_t got = recv(visitor->fd, bytes, sizeof bytes, 0);
    if (got <= 0) return MayCome(got) ? Next::kWait : Next::kClose;
    request.append(bytes, static_cast<std::size_t>(got));
  }
  if (request.find(" HTTP/1.") > request.find("\r\n")) return Next::kClose;
  // It fits into the buffer of a new connection.
  const std::string answer = AnswerTo(request);
  send(visitor->fd, answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  shutdown(visitor->fd, SHUT_WR);
  visitor->answered = true;
  visitor->until = Clock::now() + kDrainTime;
  return Drain(*visitor);
}

// Until it closes. A connection that is closed while bytes of it are unread is reset, and then the
// client may lose the answer.
FrontDoor::Next FrontDoor::Drain(const Visitor& visitor) {
  char bytes[16'384];
  ssize_t got = 1;
  for (int i = 0; i < kDrainReads && got > 0; ++i) got = recv(visitor.fd, bytes, sizeof bytes, 0);
  return got > 0 || MayCome(got) ? Next::kWait : Next::kClose;
}

}  // namespace postbox::emulator
