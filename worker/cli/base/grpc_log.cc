#include "worker/cli/base/grpc_log.h"

#include <grpc/support/log.h>
#include <grpcpp/version_info.h>

#include <cstdlib>
#include <string>

#include "worker/base/line_queue.h"

namespace postbox::cli {

void TakeGrpcLog() {
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
#if GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR < 65  // later versions log by abseil
  gpr_set_log_function([](gpr_log_func_args* line) {
    StandardError().Push("grpc " + std::string(gpr_log_severity_string(line->severity)) + " " +
                         line->file + ":" + std::to_string(line->line) + ": " + line->message +
                         "\n");
  });
#endif
}

}  // namespace postbox::cli
