#include "worker/puller/liveness.h"

#include <algorithm>
#include <utility>

namespace postbox::puller {
namespace {

// A verdict counts for so many intervals: then the server has not been asked any more.
constexpr int kOld = 4;

std::string Seconds(std::chrono::steady_clock::duration time) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count()) + " s";
}

std::string Process(const Unanswered& asked) {
  return "process " + std::to_string(asked.backend) + " of the server ";
}

}  // namespace

std::vector<Unanswered> Liveness::Looks(const ThreadSigns& signs, TimePoint now) {
  // What is known of statements that have been answered says nothing of later ones.
  std::erase_if(looks_, [&signs](const auto& each) {
    return std::none_of(signs.appliers.begin(), signs.appliers.end(), [&](const auto& applier) {
      return applier.asked && applier.asked->backend == each.first &&
             applier.asked->since == each.second.since;
    });
  });
  std::vector<Unanswered> due;
  for (const ThreadSigns::Applier& applier : signs.appliers) {
    if (!applier.asked || now - applier.asked->since < times_.look_after) continue;
    Look& look =
        looks_.try_emplace(applier.asked->backend, Look{.since = applier.asked->since, .next = now})
            .first->second;
    if (now < look.next) continue;
    look.next = now + times_.look_interval;
    due.push_back(*applier.asked);
  }
  return due;
}

void Liveness::Looked(const Unanswered& asked, Backend backend, TimePoint now) {
  const auto known = looks_.find(asked.backend);
  if (known == looks_.end()) return;
  Look& look = known->second;
  const bool goes_on =
      look.answered && look.backend == backend && now - look.at < kOld * times_.look_interval;
  if (!goes_on) look.first = now;
  look.at = now;
  look.backend = backend;
  look.answered = true;
}

std::string Liveness::ReasonOf(const Unanswered& asked, std::chrono::milliseconds statement_timeout,
                               TimePoint now) const {
  const auto known = looks_.find(asked.backend);
  if (known == looks_.end() || !known->second.answered) return "";
  const Look& look = known->second;
  if (look.since != asked.since || now - look.at >= kOld * times_.look_interval) return "";
  const std::string waited = Seconds(now - asked.since);
  switch (look.backend) {
    case Backend::kStopped:
      if (look.at - look.first < times_.doubt) return "";
      return Process(asked) + "is stopped and has not answered for " + waited;
    case Backend::kAnswered:
      if (look.at - look.first < times_.doubt) return "";
      return "an applier does not read the answer of " + Process(asked) + "since " + waited;
    case Backend::kUnknown:
      if (statement_timeout.count() == 0) return "";
      if (now - asked.since < statement_timeout + kGrace) return "";
      return Process(asked) + "has not answered for " + waited +
             ", longer than statement_timeout allows";
    case Backend::kRuns:
      return "";
  }
  return "";
}

std::vector<std::string> Liveness::Reasons(const ThreadSigns& signs, TimePoint now) const {
  std::vector<std::string> reasons;
  if (signs.stream_silence && *signs.stream_silence > times_.silence) {
    reasons.push_back("the thread of the stream has made no progress for " +
                      Seconds(*signs.stream_silence));
  }
  if (signs.letters_silence > times_.silence) {
    reasons.push_back("the thread of the dead-letter topic has made no progress for " +
                      Seconds(signs.letters_silence));
  }
  for (const ThreadSigns::Applier& applier : signs.appliers) {
    std::string reason;
    if (applier.asked) {
      reason = ReasonOf(*applier.asked, signs.statement_timeout, now);
    } else if (applier.progressed_at < now - times_.silence) {
      reason = "the thread of an applier has made no progress for " +
               Seconds(now - applier.progressed_at);
    }
    if (!reason.empty()) reasons.push_back(std::move(reason));
  }
  return reasons;
}

}  // namespace postbox::puller
