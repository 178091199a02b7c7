// What the server calls when it loads postbox.so: in the postmaster when the library is preloaded,
// otherwise in each backend that calls one of its functions. Only a preloaded postbox has shared
// memory, a launcher, workers and hooks. Without preloading, everything works except publishing and
// waking (emit-only mode).
#include "extension/base/postgres.h"
#include "extension/lifecycle/define_settings.h"
#include "extension/lifecycle/hooks.h"
#include "extension/lifecycle/launcher.h"
#include "extension/shared/exports.h"
#include "extension/shared/settings.h"
#include "extension/shared/shared_state.h"

extern "C" {
POSTBOX_MODULE("postbox");
PGDLLEXPORT void _PG_init(void);
}

namespace postbox {
namespace {

shmem_startup_hook_type next_shmem_startup = nullptr;

void HookShmemStartup() {
  if (next_shmem_startup != nullptr) next_shmem_startup();
  CreateOrFindSharedState();
}

#ifdef POSTBOX_SHMEM_REQUEST_HOOK
shmem_request_hook_type next_shmem_request = nullptr;

void HookShmemRequest() {
  if (next_shmem_request != nullptr) next_shmem_request();
  RequestSharedState();
}
#endif

void RequestSharedMemory() {
#ifdef POSTBOX_SHMEM_REQUEST_HOOK
  next_shmem_request = shmem_request_hook;
  shmem_request_hook = HookShmemRequest;
#else
  RequestSharedState();
#endif
  next_shmem_startup = shmem_startup_hook;
  shmem_startup_hook = HookShmemStartup;
}

void Init() {
  DefineSettings();
  static Exports exports{sizeof(Settings), &settings()};
  *ExportsVariable() = &exports;
  if (!process_shared_preload_libraries_in_progress) return;
  RequestSharedMemory();
  InstallHooks();
  // pg_upgrade starts the server to move the catalogs, not to publish.
  if (!IsBinaryUpgrade) RegisterLauncher();
}

}  // namespace
}  // namespace postbox

void _PG_init(void) { postbox::Init(); }
