#include "worker/publisher/delivery/sent_again.h"

#include <map>

namespace postbox::publisher {

namespace {

std::int64_t& CountOf(const std::string& publication, int slice) {
  // Never destroyed: sources go after it at exit.
  static auto& counts = *new std::map<std::pair<std::string, int>, std::int64_t>;
  return counts[{publication, slice}];
}

}  // namespace

SentAgain::SentAgain(const std::string& publication, int slice)
    : count_(CountOf(publication, slice)) {}

void SentAgain::AddResults(std::span<const EventPointer> events) {
  for (const EventPointer& event : events) {
    count_ += event->sent_again;
    // It is sent again sooner or later, if it is not discarded.
    const bool published = event->status == pubsub::PublishStatus::kPublished;
    if (!published && event->maybe_taken) ++count_;
  }
}

}  // namespace postbox::publisher
