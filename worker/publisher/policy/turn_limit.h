// How long one turn of an outbox may take before its statement is cancelled.
//
// It may be the outbox that is slow and not its owner: so the limit doubles after each turn that
// was cancelled for it, further where no other publication is held up, and shrinks again with each
// turn that ends by itself.
#ifndef POSTBOX_WORKER_PUBLISHER_POLICY_TURN_LIMIT_H_
#define POSTBOX_WORKER_PUBLISHER_POLICY_TURN_LIMIT_H_

#include <algorithm>
#include <chrono>

namespace postbox::publisher {

class TurnLimit {
 public:
  static constexpr std::chrono::milliseconds kShortest{1000};
  static constexpr int kMostDoublings = 3;
  static constexpr int kMostDoublingsAlone = 6;

  // `shared`: other publications wait for the worker.
  constexpr std::chrono::milliseconds value(bool shared) const {
    return kShortest * (1 << std::min(cancelled_, shared ? kMostDoublings : kMostDoublingsAlone));
  }
  constexpr void Cancelled() { cancelled_ = std::min(cancelled_ + 1, kMostDoublingsAlone); }
  constexpr void Ended() { cancelled_ = std::max(cancelled_ - 1, 0); }

 private:
  int cancelled_ = 0;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_POLICY_TURN_LIMIT_H_
