// How many requests may have a stream at once, as the measured round trip says.
//
// To keep the way to the broker full takes as many requests as it answers within a round trip. More
// of them only wait in some line, of the broker, of the network or of this machine's processors,
// and the messages that would pile up meanwhile leave in smaller requests. So:
//
//   - The base is how long answers take without such lines: the average of requests that began
//     while few were on their way (IsFew()), and were not followed by many before they were
//     answered: to send those took time, too. It is an average, because round trips vary: the
//     quickest one is no measure of the others.
//   - After each round, a quarter of `limit` answers to requests that began in it (8 before there
//     is a base), and kRound at least, the limit is set anew. If queues had to wait for a place
//     (Limited()) and the answers take about as long as the base, it is doubled. Else it becomes
//     what is on the way, the requests that had a stream * base / mean, a quarter more because both
//     are averages. If that is more than `least`, it is a third of `least` more, so that no line
//     runs empty.
//   - If the answers to twice as many take more than half as long again, the line has only become
//     longer, whatever the base says: the limit goes back, and is not doubled for kGrowAgain.
//   - If no request had to wait, it goes back by an eighth, down to `least`.
//   - Under load many requests are in flight all the time. So after the first round, and when the
//     base was not measured for kBaseValid, there is a probe: few requests only, until
//     kProbeAnswers of them are answered. The median of their times is the base. The answers of the
//     first round say little: they are to the burst that a client begins with. Requests of before
//     may never be answered, those of a connection that is lost, say. So a probe that takes much
//     longer than the round before is given up, and is repeated kProbeAgain later. Each one that is
//     given up in a row doubles both.
//   - The first probe sets the limit to what is on a way as long as its quickest answer took, at
//     kFirstRate, but no more than kFirstMost times `least`. To double it until then would take
//     many round trips; and what has other work at the moment must not look far away. It is
//     repeated kProbeAgain later, since what answers may have been cold.
//
// On a way without delay the processors are the limit, the mean is many times the base, and the
// limit stays `least`. Large requests take longer than the base, too: where bytes are what takes
// the time, more requests do not help.
//
// Pure logic, without a clock.
#ifndef POSTBOX_WORKER_PUBSUB_REQUEST_WINDOW_H_
#define POSTBOX_WORKER_PUBSUB_REQUEST_WINDOW_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace postbox::pubsub {

class RequestWindow {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::duration<double>;

  static constexpr std::chrono::seconds kBaseValid{15};
  static constexpr std::chrono::seconds kGrowAgain{5};
  static constexpr std::chrono::seconds kProbeAgain{5};
  static constexpr std::chrono::milliseconds kShortestProbe{200};
  static constexpr std::chrono::seconds kLongestProbe{4};
  static constexpr int kMostDoublings = 3;
  static constexpr std::size_t kProbeAnswers = 16;
  static constexpr std::chrono::milliseconds kRound{20};
  static constexpr double kFirstRate =
      20'000;  // requests in a second: about what a processor sends
  static constexpr std::size_t kFirstMost = 4;
  static constexpr std::chrono::milliseconds kSoon{500};

  RequestWindow(std::size_t least, std::size_t most)
      : least_(std::min(least, most)), most_(most), limit_(least_) {}

  std::size_t limit() const { return probing_ ? Few() : limit_; }
  // Whether a request that begins when so many others have a stream shows the base.
  bool IsFew(std::size_t streams) const { return streams < Few(); }
  // Whether requests that wait for the streams of others wait for so long at most, or for kSoon.
  bool AnswersWithin(Duration time) const {
    return !probing_ && mean_ > Duration::zero() && mean_ < std::min(time, Duration(kSoon));
  }

  // How long an answer takes at least; 0: that was not measured lately.
  Duration base(TimePoint now) const {
    return now < measured_at_ + kBaseValid ? base_ : Duration::zero();
  }

  // A request could have been sent, were it not for the limit.
  void Limited() { limited_ = true; }

  // When OnTime() must be called, if it must be.
  std::optional<TimePoint> NextTime() const {
    return probing_ ? std::optional(probe_until_) : std::nullopt;
  }
  void OnTime(TimePoint now) {
    if (!probing_ || now < probe_until_) return;
    probing_ = false;
    if (base_ == Duration::zero()) base_ = mean_;
    base_at_ = now - kBaseValid + kProbeAgain * (1 << given_up_);
    given_up_ = std::min(given_up_ + 1, kMostDoublings);
    NewRound(round_after_);
  }

  // A request, numbered in the order in which they got a stream.
  struct Request {
    std::uint64_t number;
    std::uint64_t last;   // the number of the last one
    std::size_t streams;  // in use, with its own
    bool few;             // were in use when it began
    bool waited = false;  // for its stream
  };
  // It was answered, so long after it began.
  void Answered(const Request& request, Duration took, TimePoint now) {
    if (request.few && !probing_ && IsFew(request.last - request.number)) {
      base_ = base_ == Duration::zero()
                  ? took
                  : base_ + (took - base_) / static_cast<double>(kProbeAnswers);
      base_at_ = measured_at_ = now;
    }
    // What had waited for a stream may begin after the probe, while many others are on their way.
    if (request.number <= round_after_ || (probing_ && request.waited)) return;
    if (answers_ == 0) round_began_ = now - std::chrono::duration_cast<TimePoint::duration>(took);
    sum_ += took;
    streams_ += request.streams;
    ++answers_;
    if (probing_) {
      probed_.push_back(took);
      if (answers_ < kProbeAnswers) return;
      EndProbe(now);
    } else {
      // What is sent until the first probe begins has to be answered before its own is sent.
      const std::size_t least = base_ == Duration::zero() ? 0 : limit_ / 4;
      if (answers_ < std::max<std::size_t>(least, 8) || now < round_began_ + kRound) return;
      EndRound(now);
    }
    NewRound(request.last);
  }

 private:
  // Of the requests after this one.
  void NewRound(std::uint64_t last) {
    round_after_ = last;
    sum_ = Duration::zero();
    streams_ = 0;
    answers_ = 0;
    limited_ = false;
  }

  std::size_t Few() const { return std::max<std::size_t>(least_ / 8, 1); }

  void Probe(TimePoint now) {
    probing_ = true;
    probed_.clear();
    const auto patience = std::min<Duration>(
        std::max<Duration>(4 * mean_, kShortestProbe) * (1 << given_up_), kLongestProbe);
    probe_until_ = now + std::chrono::duration_cast<TimePoint::duration>(patience);
  }
  void EndProbe(TimePoint now) {
    probing_ = false;
    given_up_ = 0;
    const auto middle = probed_.begin() + static_cast<std::ptrdiff_t>(probed_.size() / 2);
    std::nth_element(probed_.begin(), middle, probed_.end());
    base_ = *middle;
    base_at_ = measured_at_ = now;
    if (!std::exchange(probed_once_, true)) {
      const auto most = static_cast<double>(kFirstMost * least_);
      const Duration quickest = *std::min_element(probed_.begin(), probed_.end());
      SetLimit(
          std::max(std::min(kFirstRate * quickest.count(), most), static_cast<double>(limit_)));
      base_at_ = now - kBaseValid + kProbeAgain;
    }
  }
  void SetLimit(double limit) {
    limit_ = std::clamp(static_cast<std::size_t>(limit), least_, most_);
  }

  void EndRound(TimePoint now) {
    mean_ = sum_ / static_cast<double>(answers_);
    const std::size_t grown_from = std::exchange(grown_from_, 0);
    if (!limited_) {
      limit_ = std::max(least_, limit_ - limit_ / 8);
      return;
    }
    if (base_ == Duration::zero()) {
      Probe(now);
      return;
    }
    if (grown_from > 0 && mean_ > 1.5 * mean_before_) {
      limit_ = grown_from;
      grow_at_ = now + kGrowAgain;
    } else if (mean_ < 1.1 * base_) {
      if (now >= grow_at_) {
        grown_from_ = limit_;
        mean_before_ = mean_;
        limit_ = std::min(2 * limit_, most_);
      }
    } else {
      const double streams = static_cast<double>(streams_) / static_cast<double>(answers_);
      const double useful = streams * std::min(1.0, 1.25 * base_ / mean_);
      const auto least = static_cast<double>(least_);
      SetLimit(useful > least ? useful + least / 3 : least);
    }
    if (now >= base_at_ + kBaseValid) Probe(now);
  }

  const std::size_t least_;
  const std::size_t most_;
  std::size_t limit_;
  Duration base_{0};   // 0: nothing was answered yet
  Duration mean_{0};   // of the last round that was no probe
  TimePoint base_at_;  // when it was measured, or a probe to be repeated was given up
  TimePoint measured_at_;
  bool probing_ = false;
  std::vector<Duration> probed_;
  bool probed_once_ = false;
  TimePoint probe_until_;
  int given_up_ = 0;            // probes in a row
  std::size_t grown_from_ = 0;  // the limit before this round, if it was doubled for it
  Duration mean_before_{0};     // then
  TimePoint grow_at_;
  // The round.
  bool limited_ = false;
  std::uint64_t round_after_ = 0;  // later requests belong to it
  TimePoint round_began_;
  Duration sum_{0};
  std::size_t streams_ = 0;  // the sum of those that were in use
  std::size_t answers_ = 0;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_REQUEST_WINDOW_H_
