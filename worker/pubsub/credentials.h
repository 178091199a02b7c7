// Credentials for an endpoint: none for plain text, Google's application default credentials for
// TLS.
//
// They are looked for in Google's order: the file named by GOOGLE_APPLICATION_CREDENTIALS; gcloud's
// ~/.config/gcloud/application_default_credentials.json; the metadata server of Google Cloud. With
// a service account key gRPC signs its tokens itself and needs no token exchange.
//
// If GOOGLE_APPLICATION_CREDENTIALS names a file that cannot be used, that is an error. gRPC would
// go on to the next place and use an identity that was not intended.

#ifndef POSTBOX_WORKER_PUBSUB_CREDENTIALS_H_
#define POSTBOX_WORKER_PUBSUB_CREDENTIALS_H_

#include <grpcpp/security/credentials.h>

#include <memory>
#include <optional>
#include <string>

#include "proto/rules/endpoint.h"
#include "worker/pubsub/credential_spec.h"

namespace postbox::pubsub {

struct Credentials {
  std::shared_ptr<grpc::ChannelCredentials> channel;
  std::string quota_project;  // quota_project_id of the credentials file; empty if it names none
  CredentialState state;
};

// Call it on the event loop's thread, because it calls gRPC. It may take one or two seconds if it
// has to look for the metadata server. On failure returns nothing, and puts into `error` what was
// looked for and why it cannot be used.
std::optional<Credentials> MakeCredentials(const Endpoint& endpoint, const CredentialSpec& spec,
                                           std::string* error);

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_CREDENTIALS_H_
