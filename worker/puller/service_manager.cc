#include "worker/puller/service_manager.h"

#include <systemd/sd-daemon.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "worker/puller/log.h"

namespace postbox::puller {
namespace {

// The text of a file; empty if there is none.
std::string FileText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void Notify(const std::string& text) {
  const int result = sd_notify(/*unset_environment=*/0, text.c_str());
  if (result < 0) LogDebug("the service manager could not be notified", {{"errno", -result}});
}

}  // namespace

void TakeCredentials() {
  const char* directory = std::getenv("CREDENTIALS_DIRECTORY");
  if (directory == nullptr) return;
  std::string password = FileText(std::string(directory) + "/password");
  while (!password.empty() && (password.back() == '\n' || password.back() == '\r')) {
    password.pop_back();
  }
  if (!password.empty()) setenv("PGPASSWORD", password.c_str(), /*overwrite=*/0);
  const std::string google = std::string(directory) + "/google.json";
  if (FileText(google).find_first_not_of(" \t\r\n") != std::string::npos) {
    setenv("GOOGLE_APPLICATION_CREDENTIALS", google.c_str(), /*overwrite=*/0);
  }
}

ServiceManager::ServiceManager() {
  uint64_t microseconds = 0;
  if (sd_watchdog_enabled(/*unset_environment=*/0, &microseconds) <= 0) return;
  alive_interval_ = std::chrono::microseconds(microseconds) / 4;
}

void ServiceManager::Alive() {
  next_alive_ = Clock::now() + alive_interval_;
  Notify("WATCHDOG=1");
}

void ServiceManager::Ready() {
  if (ready_) return;
  ready_ = true;
  Notify("READY=1");
}

void ServiceManager::Stopping() { Notify("STOPPING=1"); }

void ServiceManager::Status(const std::string& text) {
  if (text == status_) return;
  status_ = text;
  Notify("STATUS=" + text);
}

}  // namespace postbox::puller
