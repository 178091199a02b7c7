// What a connection to an endpoint needs: for plain text nothing, for TLS the authorities to trust,
// and tokens for the calls.
//
// Trusted are the authorities in the file that GRPC_DEFAULT_SSL_ROOTS_FILE_PATH names, or else
// those of the system.
#ifndef POSTBOX_WORKER_PUBSUB_AUTH_CREDENTIALS_H_
#define POSTBOX_WORKER_PUBSUB_AUTH_CREDENTIALS_H_

#include <grpcpp/security/credentials.h>

#include <memory>
#include <optional>
#include <string>

#include "proto/rules/endpoint.h"
#include "worker/pubsub/auth/credential_spec.h"
#include "worker/pubsub/auth/token_source.h"

namespace postbox::pubsub {

struct Credentials {
  std::shared_ptr<grpc::ChannelCredentials> channel;
  std::unique_ptr<TokenSource> tokens;  // null for plain text
  std::string quota_project;            // of the credentials; empty if they name none
};

// Call it on the event loop's thread, because it calls gRPC. It may take one or two seconds if it
// has to look for the metadata server. If the credentials, or the proxy of the environment, cannot
// be used, returns nothing, and puts into `error` why.
std::optional<Credentials> MakeCredentials(const Endpoint& endpoint, const CredentialSpec& spec,
                                           std::string* error);

// Likewise, but does not wait, nor fail because of the credentials or the proxy: as long as these
// cannot be used, calls are told why (MakeChannel), and credentials are looked at again
// (TokenSource::StartUnchecked). Where their quota project is asked for, it comes with each
// Authorization; quota_project is empty.
std::optional<Credentials> MakeUncheckedCredentials(const Endpoint& endpoint,
                                                    const CredentialSpec& spec, std::string* error);

// What a self-signed token is for. The endpoints of Google's regions are one service.
std::string AudienceOf(const Endpoint& endpoint);

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_AUTH_CREDENTIALS_H_
