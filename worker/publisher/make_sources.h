// The one place that knows which kinds of outboxes there are.
#ifndef POSTBOX_WORKER_PUBLISHER_MAKE_SOURCES_H_
#define POSTBOX_WORKER_PUBLISHER_MAKE_SOURCES_H_

#include "worker/publisher/source/outbox_source.h"

namespace postbox::publisher {

// The sources of a publication, one for each lane. `topic` is the full name of the topic,
// `lock_token` the worker's.
std::vector<std::unique_ptr<OutboxSource>> MakeSources(const Publication& publication,
                                                       const std::string& topic,
                                                       const std::string& lock_token);

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_MAKE_SOURCES_H_
