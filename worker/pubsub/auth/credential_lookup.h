// Finds the credentials that a specification means: a text, a file, the account of the machine, or
// else Google's application default credentials.
#ifndef POSTBOX_WORKER_PUBSUB_AUTH_CREDENTIAL_LOOKUP_H_
#define POSTBOX_WORKER_PUBSUB_AUTH_CREDENTIAL_LOOKUP_H_

#include <optional>
#include <string>

#include "worker/pubsub/auth/credential_spec.h"
#include "worker/pubsub/auth/credentials_file.h"
#include "worker/pubsub/http_client.h"

namespace postbox::pubsub {

// The credentials as they are now. On failure returns nothing, and puts one sentence into `error`.
// May ask whether there is a metadata server; if `on_google_cloud`, it is known that there is one.
std::optional<CredentialsFile> ReadCredentials(const CredentialSpec& spec, HttpClient* http,
                                               bool on_google_cloud, std::string* error);

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_AUTH_CREDENTIAL_LOOKUP_H_
