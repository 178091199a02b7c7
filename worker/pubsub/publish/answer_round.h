// A round: the answers to requests that began in it. Requests have numbers in the order in which
// they got a stream. Pure logic, without a clock.
#ifndef POSTBOX_WORKER_PUBSUB_PUBLISH_ANSWER_ROUND_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISH_ANSWER_ROUND_H_

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace postbox::pubsub {

class AnswerRound {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::duration<double>;

  AnswerRound() = default;
  // Of the requests after this one.
  explicit AnswerRound(std::uint64_t after) : after_(after) {}

  std::uint64_t after() const { return after_; }
  void Add(Duration took, std::size_t streams, TimePoint now) {
    if (answers_ == 0) began_ = now - std::chrono::duration_cast<TimePoint::duration>(took);
    sum_ += took;
    streams_ += streams;
    ++answers_;
  }
  // When the request of the first answer began.
  TimePoint began() const { return began_; }
  std::size_t answers() const { return answers_; }
  Duration mean() const { return sum_ / static_cast<double>(answers_); }
  double mean_streams() const {
    return static_cast<double>(streams_) / static_cast<double>(answers_);
  }

 private:
  std::uint64_t after_ = 0;
  TimePoint began_;
  Duration sum_{0};
  std::size_t streams_ = 0;  // the sum of those that were in use
  std::size_t answers_ = 0;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISH_ANSWER_ROUND_H_
