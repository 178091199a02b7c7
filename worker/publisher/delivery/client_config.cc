#include "worker/publisher/delivery/client_config.h"

#include <limits>

#include "extension/base/guard.h"
#include "extension/shared/metrics.h"
#include "extension/shared/settings.h"
#include "worker/publisher/delivery/publish_timeout.h"
#include "worker/publisher/source/event_spans.h"

namespace postbox::publisher {

namespace {

bool UsesCredentials(const std::string& endpoint) {
  pubsub::Endpoint parsed;
  std::string error;
  return pubsub::ParseEndpoint(endpoint, std::getenv("PUBSUB_EMULATOR_HOST"), &parsed, &error) &&
         !parsed.plaintext;
}

}  // namespace

ClientConfig ClientConfig::Now(const CredentialChoice& choice) {
  const Settings& values = settings();
  return {
      .endpoint = values.endpoint,
      .project_id = values.project_id,
      .quota_project = values.quota_project,
      .channels = values.channels,
      .compression = values.compression,
      .publish_timeout = PublishTimeout(),
      .otlp_endpoint = values.otlp_endpoint,
      .choice = choice,
      .credentials = UsesCredentials(values.endpoint) ? pubsub::CredentialsStamp(choice.spec) : ""};
}

std::unique_ptr<pubsub::Publisher> ClientConfig::MakeClient(int notify_fd,
                                                            std::string* error) const {
  if (publish_timeout < settings().publish_timeout) {
    Pg([&] {
      ereport(LOG, (errmsg("postbox.publish_timeout is longer than half of "
                           "postbox.lease_timeout%s: events are tried for only %d s",
                           settings().time_scale == 100 ? "" : " (postbox.time_scale)",
                           publish_timeout)));
    });
  }
  pubsub::PublisherOptions options;
  if (!pubsub::ParseEndpoint(endpoint, std::getenv("PUBSUB_EMULATOR_HOST"), &options.endpoint,
                             error)) {
    return nullptr;
  }
  if (!credentials.empty() && !choice.problem.empty()) {
    *error = choice.problem;
    return nullptr;
  }
  options.credential = choice.spec;
  options.channels = channels;
  options.compression = compression == static_cast<int>(Compression::kGzip);
  // Budget keeps the budget. It allows a little more than the settings say, to large events and
  // to many publications with small parts; if the client did not take that, all would wait for it.
  options.max_outstanding_messages = options.max_outstanding_bytes =
      std::numeric_limits<std::size_t>::max();
  options.publish_timeout = std::chrono::seconds(publish_timeout);
  options.quota_project = quota_project;
  options.notify_fd = notify_fd;
  options.spans = EventSpans();
  if (metrics_state() != nullptr) options.meters = metrics_state()->meters;
  return pubsub::Publisher::Create(std::move(options), error);
}

}  // namespace postbox::publisher
