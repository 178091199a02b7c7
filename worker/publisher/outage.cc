#include "worker/publisher/outage.h"

#include "extension/shared/time_scale.h"
#include "worker/publisher/base/publish_timeout.h"
#include "worker/publisher/base/registration.h"
#include "worker/publisher/base/server_text.h"
#include "worker/pubsub/topic_health.h"

namespace postbox::publisher {
namespace {

using std::chrono::milliseconds;

// A request that fails now and then is nothing to speak of.
constexpr milliseconds kPatience(500);
// What was given up is claimed and tried again. In between there is nothing that waits, which says
// nothing about the topic. And when one connection is there again, others may take a little longer.
constexpr milliseconds kCalm = std::chrono::seconds(3);
constexpr milliseconds kLineInterval = std::chrono::minutes(1);
// A line names so many publications.
constexpr std::size_t kMaxNames = 3;

// publication "a"; publications "a", "b"; publications "a", "b", "c" and 4 more
std::string Listed(const std::set<std::string>& names) {
  std::string text = names.size() == 1 ? "publication " : "publications ";
  std::size_t count = 0;
  for (const std::string& name : names) {
    if (count == kMaxNames) return text + " and " + std::to_string(names.size() - count) + " more";
    if (count++ > 0) text += ", ";
    text += '"' + name + '"';
  }
  return text;
}

std::string TimeText(TimestampTz time) {
  return Pg([&]() -> const char* { return timestamptz_to_str(time); });
}

void Write(const std::string& message, const std::string& detail) {
  Pg([&] {
    ereport(WARNING, (errmsg("%s", message.c_str()), errdetail_internal("%s", detail.c_str()),
                      errhint("Events wait, and are published as soon as Pub/Sub answers. See "
                              "postbox.publication_status and postbox.endpoint.")));
  });
}

}  // namespace

TimestampTz OutageWatch::At(std::chrono::steady_clock::time_point time) const {
  return now_ + std::chrono::duration_cast<std::chrono::microseconds>(time - steady_now_).count();
}

void OutageWatch::Look(const Outlets& outlets, const std::vector<LanePointer>& lanes,
                       TimestampTz now) {
  const auto fails = [](const auto& outlet) {
    return outlet->client() != nullptr && outlet->client()->AnyFails();
  };
  const bool any = std::any_of(outlets.begin(), outlets.end(), fails);
  next_look_ = DT_NOEND;
  if (!any && outages_.empty() && ended_at_ == 0) return;
  now_ = now;
  steady_now_ = std::chrono::steady_clock::now();
  const std::vector<Outage> before = std::exchange(outages_, {});
  if (any) {
    for (const auto& outlet : outlets) {
      if (fails(outlet)) Find(*outlet, lanes);
    }
  } else {
    waited_at_.clear();
  }
  if (outages_ != before) {
    std::vector<ShownOutage> shown;
    for (const Outage& one : outages_) {
      shown.push_back({HashOfName(one.publication), At(one.since), At(one.next_try), one.error});
    }
    ShowOutages(shown);
  }
  if (!outages_.empty()) {
    ended_at_ = 0;
    Tell();
    return;
  }
  if (!before.empty()) ended_at_ = now_;
  if (ended_at_ == 0) return;
  const TimestampTz calm_at = TimestampTzPlusMilliseconds(ended_at_, kCalm.count());
  if (now_ < calm_at) {
    next_look_ = std::min(next_look_, calm_at);
  } else {
    TellEnd();
  }
}

bool OutageWatch::Waits(const Lane& lane) {
  const std::string& name = lane.publication_name();
  if (lane.WaitsForAnswer()) {
    waited_at_[name] = steady_now_;
    return true;
  }
  const auto found = waited_at_.find(name);
  if (found == waited_at_.end() || steady_now_ >= found->second + kCalm) return false;
  next_look_ = std::min(next_look_, At(found->second + kCalm));
  return true;
}

void OutageWatch::Find(const Outlet& outlet, const std::vector<LanePointer>& lanes) {
  const auto forgotten = std::chrono::seconds(PublishTimeout()) * pubsub::TopicHealth::kForgotten;
  for (const pubsub::FailingTopic& failing : outlet.client()->FailingTopics()) {
    for (const LanePointer& lane : lanes) {
      if (lane->topic() != failing.topic || lane->credential() != outlet.credential()) continue;
      if (!Waits(*lane)) continue;
      const std::string& name = lane->publication_name();
      if (!outages_.empty() && outages_.back().publication == name) continue;
      // Nobody has sent anything for long: it is not known how the topic is now.
      if (steady_now_ > failing.next_try + forgotten) continue;
      if (steady_now_ < failing.since + kPatience) {
        next_look_ = std::min(next_look_, At(failing.since + kPatience));
        continue;
      }
      outages_.push_back({name, failing.since, failing.next_try,
                          Shortened(ServerText(failing.error), kMaxShownError)});
    }
  }
}

void OutageWatch::Tell() {
  if (now_ >= next_line_) {
    next_line_ = TimestampTzPlusMilliseconds(now_, Scaled(kLineInterval).count());
    const bool begins = told_.empty();
    const Outage* first = nullptr;
    for (const Outage& one : outages_) {
      if (!TellsOfOutage(HashOfName(one.publication))) continue;
      told_.insert(one.publication);
      if (first == nullptr) first = &one;
    }
    if (first != nullptr) {
      if (begins) told_since_ = At(first->since);
      Write(Listed(told_) + (told_.size() == 1 ? " is " : " are ") + (begins ? "" : "still ") +
                "retrying: " + first->error,
            "Nothing was answered since " + TimeText(At(first->since)) + ". The next try is at " +
                TimeText(At(first->next_try)) + ".");
    }
  }
  next_look_ = std::min(next_look_, next_line_);
}

void OutageWatch::TellEnd() {
  const TimestampTz ended_at = std::exchange(ended_at_, 0);
  next_line_ = 0;
  if (told_.empty()) return;
  const std::string message = Listed(told_) + (told_.size() == 1 ? " goes" : " go") + " on after " +
                              std::to_string((ended_at - told_since_) / USECS_PER_SEC) + " s";
  told_.clear();
  Pg([&] { ereport(LOG, (errmsg("%s", message.c_str()))); });
}

}  // namespace postbox::publisher
