// The port of an emulator that serves plain text. It is for gRPC, and for what asks over HTTP/1.1
// whether the emulator is there: curl, and health checks of containers.
//
// gRPC knows HTTP/2 only, so connections are accepted here, and looked at without reading. Those
// that begin as HTTP/2 does (PRI) are handed over to gRPC as they are. From then on nothing of this
// stands in their way. All others are answered here, and closed:
//
//   GET or HEAD /    200, as Google's emulator does
//   other requests   404 with a line that says what this port is
//   anything else    closed
//
// One thread. It holds at most kMostWaiting connections that have not said what they are, and each
// of them for a limited time only.
#ifndef POSTBOX_WORKER_EMULATOR_FRONT_DOOR_H_
#define POSTBOX_WORKER_EMULATOR_FRONT_DOOR_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

namespace postbox::emulator {

class FrontDoor {
 public:
  using Clock = std::chrono::steady_clock;
  // Gets the descriptor of a connection, non-blocking, and owns it.
  using HandOver = std::function<void(int fd)>;

  static constexpr std::size_t kMostWaiting = 1000;

  // Listens at every address of the host, at the same port; 0 is a free one. UNAVAILABLE with the
  // reason if that cannot be had. Connections wait until Start().
  static absl::StatusOr<std::unique_ptr<FrontDoor>> Listen(const std::string& host, int port);
  ~FrontDoor();  // closes all connections that were not handed over
  FrontDoor(const FrontDoor&) = delete;
  FrontDoor& operator=(const FrontDoor&) = delete;

  int port() const { return port_; }
  void Start(HandOver hand_over);

 private:
  // One that has not said what it is, or not all of its request, or is still saying it.
  struct Visitor {
    int fd;
    Clock::time_point until;  // it is closed then
    std::string request;      // of HTTP/1.1
    bool is_http = false;
    bool answered = false;
    bool pauses = false;  // its first bytes are too few; it is looked at again soon
  };
  enum class Next { kWait, kClose, kGone };

  FrontDoor(std::vector<int> listeners, int port);

  void Serve();
  // Waits for something to do. False at the end.
  bool WaitForAny(std::vector<bool>* ready, bool* knocks);
  void Accept();
  Next Look(Visitor* visitor);
  static Next Read(Visitor* visitor);
  static Next Drain(const Visitor& visitor);

  const std::vector<int> listeners_;
  const int port_;
  const int stop_fd_;  // readable when the thread is to end
  HandOver hand_over_;
  std::vector<Visitor> visitors_;
  Clock::time_point accept_at_{};  // not before: there are no descriptors
  std::thread thread_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_FRONT_DOOR_H_
