#include "worker/emulator/auth/tls.h"

#include <grpcpp/security/auth_metadata_processor.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace postbox::emulator {
namespace {

absl::StatusOr<std::string> ReadFile(const std::string& path, absl::string_view what) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat("the ", what, " \"", path, "\" is not a file"));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (text.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ", what, " \"", path, "\" cannot be read: ", std::strerror(errno)));
  }
  return text;
}

// gRPC asks it about every call.
class CheckBearer : public grpc::AuthMetadataProcessor {
 public:
  explicit CheckBearer(std::shared_ptr<const BearerVerifier> verifier)
      : verifier_(std::move(verifier)) {}

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* /*context*/,
                       OutputMetadata* /*consumed*/, OutputMetadata* /*response*/) override {
    const auto header = metadata.find("authorization");
    std::string authorization;
    if (header != metadata.end()) {
      authorization.assign(header->second.data(), header->second.size());
    }
    const absl::Status status = verifier_->Verify(authorization).status();
    return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
  }

 private:
  const std::shared_ptr<const BearerVerifier> verifier_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const TlsOptions& options) {
  if (options.certificate_file.empty()) {
    if (options.verifier != nullptr) {
      return absl::InvalidArgumentError("callers can be identified over TLS only: pass --tls-cert");
    }
    return grpc::InsecureServerCredentials();
  }
  const auto certificate = ReadFile(options.certificate_file, "certificate");
  if (!certificate.ok()) return certificate.status();
  const auto key = ReadFile(options.key_file, "key");
  if (!key.ok()) return key.status();
  grpc::SslServerCredentialsOptions ssl;
  ssl.pem_key_cert_pairs.push_back({*key, *certificate});
  auto credentials = grpc::SslServerCredentials(ssl);
  if (options.verifier != nullptr) {
    credentials->SetAuthMetadataProcessor(std::make_shared<CheckBearer>(options.verifier));
  }
  return credentials;
}

}  // namespace postbox::emulator
