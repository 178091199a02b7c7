// What the service manager, systemd, is told, and what it hands over. Started without one, the
// process goes on as if nothing of this were here.
//
//   - READY=1 once messages can come: pull.cc says what that means.
//   - WATCHDOG=1 as long as every thread makes progress, a few times within the time after which
//     systemd ends a service that is silent.
//   - STOPPING=1 when the process has begun to end, and STATUS=... for `systemctl status`.
//   - Secrets arrive as files in a directory that only the service can read (LoadCredential=). They
//     are in no argument and in no environment that others can look at.
#ifndef POSTBOX_WORKER_PULLER_SERVICE_MANAGER_H_
#define POSTBOX_WORKER_PULLER_SERVICE_MANAGER_H_

#include <chrono>
#include <string>

namespace postbox::puller {

// Of the files in CREDENTIALS_DIRECTORY that are not blank, `password` becomes the password of the
// database, and `google.json` the credentials for Pub/Sub. What the environment says comes first.
// Called before there is another thread.
void TakeCredentials();

class ServiceManager {
 public:
  using Clock = std::chrono::steady_clock;

  ServiceManager();

  // Whether it wants to hear WATCHDOG=1.
  bool watching() const { return alive_interval_ > Clock::duration::zero(); }
  // True when the next Alive() is due.
  bool alive_due() const { return watching() && Clock::now() >= next_alive_; }
  void Alive();
  void Ready();  // the first call counts
  void Stopping();
  void Status(const std::string& text);  // sent when it has changed

 private:
  Clock::duration alive_interval_{};
  Clock::time_point next_alive_{};
  bool ready_ = false;
  std::string status_;
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_SERVICE_MANAGER_H_
