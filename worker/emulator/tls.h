// TLS for the emulator, and who may call it then.
#ifndef POSTBOX_WORKER_EMULATOR_TLS_H_
#define POSTBOX_WORKER_EMULATOR_TLS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/emulator/bearer.h"

namespace postbox::emulator {

struct TlsOptions {
  std::string certificate_file;  // PEM, with the chain; empty: plain text
  std::string key_file;          // PEM
  // With TLS only. If there are none, whoever connects may do everything.
  std::vector<TrustedAccount> accounts;
  // What tokens may have as their audience.
  std::vector<std::string> hosts = {"localhost", "127.0.0.1"};
};

// INVALID_ARGUMENT if a file cannot be used.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const TlsOptions& options);

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_TLS_H_
