#include "worker/publisher/make_sources.h"

#include "worker/publisher/source/log/log_outbox.h"
#include "worker/publisher/source/table/table_outbox.h"

namespace postbox::publisher {

std::vector<std::unique_ptr<OutboxSource>> MakeSources(const Publication& publication,
                                                       const std::string& topic,
                                                       const std::string& lock_token) {
  std::vector<std::unique_ptr<OutboxSource>> sources;
  if (!publication.is_log()) {
    sources.push_back(std::make_unique<TableOutbox>(publication, topic, lock_token));
    return sources;
  }
  const auto share = std::make_shared<LaneShare>(LaneShare{.log = EventLog(publication.name)});
  for (int slice = 0; slice < publication.lanes; ++slice) {
    sources.push_back(std::make_unique<LogOutbox>(publication, slice, share, topic, lock_token));
  }
  return sources;
}

}  // namespace postbox::publisher
