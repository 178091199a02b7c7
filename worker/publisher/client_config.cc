#include "worker/publisher/client_config.h"

#include "extension/base/guard.h"
#include "extension/shared/settings.h"
#include "worker/publisher/base/publish_timeout.h"

namespace postbox::publisher {

ClientConfig ClientConfig::FromSettings() {
  const Settings& values = settings();
  return {.endpoint = values.endpoint,
          .project_id = values.project_id,
          .quota_project = values.quota_project,
          .channels = values.channels,
          .publish_timeout = PublishTimeout(),
          .max_messages = values.max_outstanding_messages,
          .max_kilobytes = values.max_outstanding_bytes};
}

std::unique_ptr<pubsub::Publisher> ClientConfig::MakeClient(int notify_fd,
                                                            std::string* error) const {
  if (publish_timeout < settings().publish_timeout) {
    Pg([&] {
      ereport(LOG, (errmsg("postbox.publish_timeout is longer than half of postbox.lease_timeout: "
                           "events are tried for %d s only",
                           publish_timeout)));
    });
  }
  pubsub::PublisherOptions options;
  if (!pubsub::ParseEndpoint(endpoint, std::getenv("PUBSUB_EMULATOR_HOST"), &options.endpoint,
                             error)) {
    return nullptr;
  }
  options.channels = channels;
  // InFlight keeps the budget. This is above all that it allows (proto/rules/fair_share.h).
  options.max_outstanding_messages = static_cast<std::size_t>(max_messages) * 2;
  options.max_outstanding_bytes = static_cast<std::size_t>(max_kilobytes) * 1024 * 2;
  options.publish_timeout = std::chrono::seconds(publish_timeout);
  options.quota_project = quota_project;
  options.notify_fd = notify_fd;
  return pubsub::Publisher::Create(std::move(options), error);
}

}  // namespace postbox::publisher
