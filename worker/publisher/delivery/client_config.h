// What the Pub/Sub client of an identity is made of: the settings, and the credentials. When they
// change, another client is needed.
#ifndef POSTBOX_WORKER_PUBLISHER_DELIVERY_CLIENT_CONFIG_H_
#define POSTBOX_WORKER_PUBLISHER_DELIVERY_CLIENT_CONFIG_H_

#include <memory>
#include <string>

#include "worker/publisher/store/credential_choice.h"
#include "worker/pubsub/publish/publisher.h"

namespace postbox::publisher {

struct ClientConfig {
  std::string endpoint, project_id, quota_project;
  int channels = 0;
  int compression = 0;      // a Compression
  int publish_timeout = 0;  // s, see PublishTimeout()
  std::string otlp_endpoint;
  CredentialChoice choice;
  std::string credentials;  // CredentialsStamp(); empty: the endpoint needs none

  static ClientConfig Now(const CredentialChoice& choice);
  bool operator==(const ClientConfig&) const = default;

  // Null and the reason in `error` if there can be no client: no credentials, no threads.
  // `notify_fd`: an eventfd that is written to when results wait.
  std::unique_ptr<pubsub::Publisher> MakeClient(int notify_fd, std::string* error) const;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_DELIVERY_CLIENT_CONFIG_H_
