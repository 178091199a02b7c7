// session_is_stopped: whether the process of a session is stopped, for `postbox pull`. No view of
// the server tells a process that works from one that got SIGSTOP, or that a debugger holds: both
// are active. Linux says it in /proc, which every process may read.
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "extension/base/arguments.h"

extern "C" {
#include <storage/proc.h>
#include <storage/procarray.h>
#include <utils/acl.h>
}

namespace postbox {
namespace {

// Nothing without /proc, or if the process has ended.
std::optional<char> ProcessState(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  // The name of the program, in parentheses, may have any character.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return std::nullopt;
  return text[name_end + 2];
}

// One that the caller could end, too.
bool IsOwnSession(int pid) {
  return Pg([pid] {
    const PGPROC* process = BackendPidGetProc(pid);
    return process != nullptr && has_privs_of_role(GetUserId(), process->roleId);
  });
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(session_is_stopped) {
  using namespace postbox;
  return Guarded([&] {
    const int pid = DatumGetInt32(Argument(fcinfo, 0, "pid"));
    std::optional<char> state;
    if (IsOwnSession(pid)) state = ProcessState(pid);
    fcinfo->isnull = !state.has_value();
    // T: by a signal; t: by a debugger.
    return BoolGetDatum(state == 'T' || state == 't');
  });
}
