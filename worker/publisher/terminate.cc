// See terminate.h.
#include "worker/publisher/terminate.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>

#include "extension/base/guard.h"

namespace postbox::publisher {

namespace {

std::atomic<bool> thread_died{false};

bool OnMainThread() { return syscall(SYS_gettid) == getpid(); }

// Static memory: the exception may be that there is none left.
const char* WhatHappened() {
  static char text[256];
  const char* what = "no exception is active";
  try {
    if (std::current_exception() != nullptr) std::rethrow_exception(std::current_exception());
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {
    what = "an exception of unknown type";
  }
  std::snprintf(text, sizeof text, "postbox publisher cannot continue: %s", what);
  return text;
}

[[noreturn]] void OnTerminate() {
  const char* text = WhatHappened();
  thread_died = true;
  if (OnMainThread()) {
    ereport(LOG, (errmsg("%s", text)));
    proc_exit(1);
  }
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
  written = write(STDERR_FILENO, "\n", 1);
  kill(getpid(), SIGTERM);
  while (true) pause();
}

// The last exit callback: past everything of the server, before C++ destroys statics.
void SkipDestructors(int code, Datum /*argument*/) {
  if (thread_died) _exit(code);
}

}  // namespace

void InstallTerminateHandler() {
  std::set_terminate(OnTerminate);
  on_proc_exit(SkipDestructors, 0);
}

void LeaveIfThreadDied() {
  if (!thread_died) return;
  Pg([] {
    ereport(LOG, (errmsg("a thread of the postbox publisher has died")));
    proc_exit(1);
  });
}

bool ThreadDied() { return thread_died; }

}  // namespace postbox::publisher
