#include "worker/cli/rebuild/pull_process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

namespace postbox::cli {
namespace {

constexpr std::chrono::milliseconds kExitPoll{50};

std::vector<std::string> Arguments(const puller::PullOptions& pull,
                                   const std::string& subscription) {
  std::vector<std::string> arguments = {"postbox", "pull", "--subscription", subscription};
  const auto add = [&arguments](const char* option, const std::string& value) {
    if (!value.empty()) arguments.insert(arguments.end(), {option, value});
  };
  add("--dsn", pull.dsn);
  add("--endpoint", pull.endpoint);
  add("--project", pull.project);
  add("--grace-period", std::to_string(pull.grace_period_seconds));
  add("--log-format", pull.log_format);
  add("--otlp-endpoint", pull.otlp_endpoint);
  for (const auto& [name, file] : pull.credentials) add("--credential", name + "=" + file);
  return arguments;
}

}  // namespace

std::optional<PullProcess> PullProcess::Start(const puller::PullOptions& pull,
                                              const std::string& subscription) {
  std::vector<std::string> arguments = Arguments(pull, subscription);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return std::nullopt;
  if (pid > 0) return PullProcess(pid);
  // Only what is safe while other threads of the parent hold locks.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() == parent) execv("/proc/self/exe", argv.data());
  _exit(1);
}

bool PullProcess::Running(int* status) {
  int raw = 0;
  if (pid_ == 0 || waitpid(pid_, &raw, WNOHANG) == 0) return pid_ != 0;
  pid_ = 0;
  *status = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
  return false;
}

void PullProcess::Stop(std::chrono::seconds time) {
  if (pid_ == 0) return;
  kill(pid_, SIGTERM);
  int status = 0;
  const auto end = std::chrono::steady_clock::now() + time;
  while (Running(&status)) {
    if (std::chrono::steady_clock::now() >= end) kill(pid_, SIGKILL);
    std::this_thread::sleep_for(kExitPoll);
  }
}

}  // namespace postbox::cli
