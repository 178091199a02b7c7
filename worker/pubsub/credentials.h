// Credentials for an endpoint: none for plain text, Google's application default credentials for
// TLS.
//
// Where they come from (the official order): the file named by GOOGLE_APPLICATION_CREDENTIALS;
// gcloud's ~/.config/gcloud/application_default_credentials.json; the metadata server of Google
// Cloud. A service account key becomes a self-signed token, without a token exchange.
//
// A file that is named but cannot be used is an error here: gRPC would go on to the next place and
// work with an identity that nobody meant.

#ifndef POSTBOX_WORKER_PUBSUB_CREDENTIALS_H_
#define POSTBOX_WORKER_PUBSUB_CREDENTIALS_H_

#include <grpcpp/security/credentials.h>

#include <memory>
#include <optional>
#include <string>

#include "proto/rules/endpoint.h"

namespace postbox::pubsub {

struct Credentials {
  std::shared_ptr<grpc::ChannelCredentials> channel;
  std::string quota_project;  // quota_project_id of the credentials file; empty if it names none
};

// On the loop's thread (it calls gRPC). May take a second or two where the metadata server has to
// be looked for. On failure: nothing, and in `error` what was looked for and why it does not do.
std::optional<Credentials> MakeCredentials(const Endpoint& endpoint, std::string* error);

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_CREDENTIALS_H_
