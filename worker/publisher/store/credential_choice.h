// With which identity the publications of a database publish: postbox.credential, as the client
// takes it.
#ifndef POSTBOX_WORKER_PUBLISHER_STORE_CREDENTIAL_CHOICE_H_
#define POSTBOX_WORKER_PUBLISHER_STORE_CREDENTIAL_CHOICE_H_

#include <map>
#include <string>

#include "worker/pubsub/auth/credential_spec.h"

namespace postbox::publisher {

// By default that of the server's environment.
struct CredentialChoice {
  pubsub::CredentialSpec spec{};
  std::string problem{};  // why it cannot be used; empty if nothing is known against it

  bool operator==(const CredentialChoice&) const = default;
};

// By the name of the credential, for each one that a publication names; an empty name is the
// identity of the server's environment. In a transaction, with the rights of the worker.
std::map<std::string, CredentialChoice> LoadCredentialChoices();

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_STORE_CREDENTIAL_CHOICE_H_
