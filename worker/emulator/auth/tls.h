// TLS for the emulator, and who may call it then.
#ifndef POSTBOX_WORKER_EMULATOR_AUTH_TLS_H_
#define POSTBOX_WORKER_EMULATOR_AUTH_TLS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "worker/emulator/auth/bearer.h"

namespace postbox::emulator {

struct TlsOptions {
  std::string certificate_file;  // PEM, with the chain; empty: plain text
  std::string key_file;          // PEM
  // With TLS only. If it is null, every client may do everything.
  std::shared_ptr<const BearerVerifier> verifier;
  // If they are given, the IAM policies are enforced; these accounts may do everything.
  std::optional<std::set<std::string>> administrators;
};

// INVALID_ARGUMENT if a file cannot be used.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const TlsOptions& options);

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_AUTH_TLS_H_
