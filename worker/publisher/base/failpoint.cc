// See failpoint.h.
#include "worker/publisher/base/failpoint.h"

#include <csignal>

#include "extension/base/guard.h"
#include "extension/rules/failpoint_list.h"
#include "extension/shared/settings.h"
#include "worker/publisher/base/registration.h"

extern "C" {
#include <postmaster/interrupt.h>
}

namespace postbox::publisher {

void Failpoint(const char* name) {
  if (*settings().failpoint == '\0') return;
  const auto action = [&] { return pubsub::FindFailpoint(settings().failpoint, name); };
  if (action() == "kill") {
    Pg([&] { ereport(LOG, (errmsg("failpoint %s: killed", name))); });
    kill(getpid(), SIGKILL);
  }
  if (action() == "error") {
    Throw(ERRCODE_INTERNAL_ERROR, std::string("failpoint ") + name + ": error");
  }
  bool told = false;
  while (action() == "pause" && !StopRequested()) {
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
