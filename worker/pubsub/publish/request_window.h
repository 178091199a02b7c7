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
//     is a base), and kRound at least, the limit is set again. If queues had to wait for a place
//     (Limited()) and the answers take about as long as the base, it is doubled. Else it becomes
//     what is on the way, the requests that had a stream * base / mean, a quarter more because both
//     are averages. If that is more than `least`, it is a third of `least` more, so that no line
//     runs empty.
//   - If the answers to twice as many take more than half as long again, the line has only become
//     longer, whatever the base says: the limit goes back, and is not doubled for kGrowAgain.
//   - If no request had to wait, it goes back by an eighth, down to `least`.
//   - Under load many requests are in flight all the time. So after the first round, and when the
//     base was not measured for some time (round_trip_base.h), there is a probe
//     (round_trip_probe.h). The median of its times is the base. The answers of the first round say
//     little: they are to the burst that a client begins with.
//   - The first probe sets the limit to what is on a way as long as its quickest answer took, at
//     kFirstRate, but no more than kFirstMost times `least`. To double it until then would take
//     many round trips; and what has other work at the moment must not look far away. It is
//     repeated soon, since what answers may have been cold.
//
// On a way without delay the processors are the limit, the mean is many times the base, and the
// limit stays `least`. Large requests take longer than the base, too: where bytes are what takes
// the time, more requests do not help.
//
// Pure logic, without a clock.
#ifndef POSTBOX_WORKER_PUBSUB_PUBLISH_REQUEST_WINDOW_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISH_REQUEST_WINDOW_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "worker/pubsub/publish/answer_round.h"
#include "worker/pubsub/publish/round_trip_base.h"
#include "worker/pubsub/publish/round_trip_probe.h"

namespace postbox::pubsub {

class RequestWindow {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::duration<double>;

  static constexpr std::chrono::seconds kGrowAgain{5};
  static constexpr std::chrono::milliseconds kRound{20};
  static constexpr double kFirstRate =
      20'000;  // requests in a second: about what a processor sends
  static constexpr std::size_t kFirstMost = 4;
  static constexpr std::chrono::milliseconds kSoon{500};

  RequestWindow(std::size_t least, std::size_t most)
      : least_(std::min(least, most)), most_(most), limit_(least_) {}

  std::size_t limit() const { return probe_.running() ? Few() : limit_; }
  // Whether a request that begins when so many others have a stream shows the base.
  bool IsFew(std::size_t streams) const { return streams < Few(); }
  // Whether requests that wait for the streams of others wait for so long at most, or for kSoon.
  bool AnswersWithin(Duration time) const {
    return !probe_.running() && mean_ > Duration::zero() && mean_ < std::min(time, Duration(kSoon));
  }

  // How long an answer takes at least; 0: that was not measured lately.
  Duration base(TimePoint now) const { return base_.TimeAt(now); }

  // A request could have been sent, were it not for the limit.
  void Limited() { limited_ = true; }

  // When OnTime() must be called, if it must be.
  std::optional<TimePoint> NextTime() const {
    return probe_.running() ? std::optional(probe_.until()) : std::nullopt;
  }
  void OnTime(TimePoint now) {
    if (!probe_.running() || now < probe_.until()) return;
    base_.Assume(mean_);
    base_.MeasureAt(now + probe_.GiveUp());
    NewRound(round_.after());
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
    if (request.few && !probe_.running() && IsFew(request.last - request.number)) {
      base_.Average(took, now);
    }
    // What had waited for a stream may begin after the probe, while many others are on their way.
    if (request.number <= round_.after() || (probe_.running() && request.waited)) return;
    round_.Add(took, request.streams, now);
    if (probe_.running()) {
      if (!probe_.Add(took)) return;
      EndProbe(now);
    } else {
      // What is sent until the first probe begins has to be answered before its own is sent.
      const std::size_t least = base_.known() ? limit_ / 4 : 0;
      if (round_.answers() < std::max<std::size_t>(least, 8) || now < round_.began() + kRound) {
        return;
      }
      EndRound(now);
    }
    NewRound(request.last);
  }

 private:
  // Of the requests after this one.
  void NewRound(std::uint64_t last) {
    round_ = AnswerRound(last);
    limited_ = false;
  }

  std::size_t Few() const { return std::max<std::size_t>(least_ / 8, 1); }

  void EndProbe(TimePoint now) {
    const RoundTripProbe::Result result = probe_.TakeResult();
    base_.Set(result.median, now);
    if (std::exchange(probed_once_, true)) return;
    const auto most = static_cast<double>(kFirstMost * least_);
    SetLimit(std::max(std::min(kFirstRate * result.quickest.count(), most),
                      static_cast<double>(limit_)));
    base_.MeasureAt(now + RoundTripProbe::kAgain);
  }
  void SetLimit(double limit) {
    limit_ = std::clamp(static_cast<std::size_t>(limit), least_, most_);
  }

  void EndRound(TimePoint now) {
    mean_ = round_.mean();
    const std::optional<Doubled> doubled = std::exchange(doubled_, std::nullopt);
    if (!limited_) {
      limit_ = std::max(least_, limit_ - limit_ / 8);
      return;
    }
    if (!base_.known()) {
      probe_.Start(mean_, now);
      return;
    }
    if (doubled && mean_ > 1.5 * doubled->mean) {
      limit_ = doubled->from;
      grow_at_ = now + kGrowAgain;
    } else if (mean_ < 1.1 * base_.time()) {
      if (now >= grow_at_) {
        doubled_ = {limit_, mean_};
        limit_ = std::min(2 * limit_, most_);
      }
    } else {
      const double useful = round_.mean_streams() * std::min(1.0, 1.25 * base_.time() / mean_);
      const auto least = static_cast<double>(least_);
      SetLimit(useful > least ? useful + least / 3 : least);
    }
    if (base_.IsDue(now)) probe_.Start(mean_, now);
  }

  // What was before the limit was doubled.
  struct Doubled {
    std::size_t from;
    Duration mean;
  };

  const std::size_t least_;
  const std::size_t most_;
  std::size_t limit_;
  RoundTripBase base_;
  AnswerRound round_;
  Duration mean_{0};  // of the last round that was no probe
  RoundTripProbe probe_;
  bool probed_once_ = false;
  bool limited_ = false;            // in this round
  std::optional<Doubled> doubled_;  // for this round
  TimePoint grow_at_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISH_REQUEST_WINDOW_H_
