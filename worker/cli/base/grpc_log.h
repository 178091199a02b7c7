// The lines that gRPC writes by itself.
#ifndef POSTBOX_WORKER_CLI_BASE_GRPC_LOG_H_
#define POSTBOX_WORKER_CLI_BASE_GRPC_LOG_H_

namespace postbox::cli {

// Without GRPC_VERBOSITY in the environment there are none, or they would stand between the lines
// of the log whatever fails. With it, they go the way of all others: gRPC would wait for a reader
// of standard error. Called before gRPC is used.
void TakeGrpcLog();

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_BASE_GRPC_LOG_H_
