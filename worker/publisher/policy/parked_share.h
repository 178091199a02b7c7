// How many events of a claim may be parked ones, whose time has come: retries, and what
// postbox.republish has queued. While new events come they get little of it, so that a claim is
// short and the next one soon finds what has come meanwhile; otherwise nearly all.
#ifndef POSTBOX_WORKER_PUBLISHER_POLICY_PARKED_SHARE_H_
#define POSTBOX_WORKER_PUBLISHER_POLICY_PARKED_SHARE_H_

#include <algorithm>
#include <cstddef>

namespace postbox::publisher {

class ParkedShare {
 public:
  // Of a claim of so many events, or bytes.
  std::size_t Of(std::size_t most) const {
    const std::size_t part = std::max<std::size_t>(most / 8, 1);
    return std::max<std::size_t>(found_new_ ? part : most - part, 1);
  }
  // How many new events the claim has found.
  void Found(std::size_t events) { found_new_ = events > 0; }

 private:
  bool found_new_ = false;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_POLICY_PARKED_SHARE_H_
