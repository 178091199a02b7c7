// See failpoint.h.
#include "worker/publisher/failpoint.h"

#include <csignal>

#include "extension/base/guard.h"
#include "worker/publisher/registration.h"

extern "C" {
#include <postmaster/interrupt.h>
}

namespace postbox::publisher {

namespace {

std::string_view Action(std::string_view name) {
  std::string_view list = settings().failpoint;
  while (!list.empty()) {
    const std::string_view entry = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), entry.size() + 1));
    const std::size_t equals = entry.find('=');
    if (entry.substr(0, equals) == name && equals != std::string_view::npos)
      return entry.substr(equals + 1);
  }
  return "";
}

}  // namespace

void Failpoint(const char* name) {
  if (*settings().failpoint == '\0') return;
  if (Action(name) == "kill") {
    Pg([&] { ereport(LOG, (errmsg("failpoint %s: killed", name))); });
    kill(getpid(), SIGKILL);
  }
  if (Action(name) == "error") {
    Throw(ERRCODE_INTERNAL_ERROR, std::string("failpoint ") + name + ": error");
  }
  bool told = false;
  while (Action(name) == "pause" && !StopRequested()) {
    if (!told) Pg([&] { ereport(LOG, (errmsg("failpoint %s: paused", name))); });
    told = true;
    Pg([] {
      CHECK_FOR_INTERRUPTS();
      WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 1000, PG_WAIT_EXTENSION);
      ResetLatch(MyLatch);
      if (ConfigReloadPending) {
        ConfigReloadPending = false;
        ProcessConfigFile(PGC_SIGHUP);
      }
    });
  }
}

}  // namespace postbox::publisher
