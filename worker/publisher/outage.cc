#include "worker/publisher/outage.h"

#include "worker/publisher/base/registration.h"
#include "worker/publisher/base/server_text.h"
#include "worker/publisher/delivery/publish_timeout.h"
#include "worker/publisher/scale.h"
#include "worker/pubsub/publish/topic_health.h"

namespace postbox::publisher {
namespace {

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

bool Fails(const Outlet& outlet) {
  return outlet.client() != nullptr && outlet.client()->AnyFails();
}

}  // namespace

void OutageWatch::Look(const Outlets& outlets, const std::vector<LanePointer>& lanes,
                       TimestampTz now) {
  next_look_ = DT_NOEND;
  const bool any = std::any_of(outlets.begin(), outlets.end(),
                               [](const auto& outlet) { return Fails(*outlet); });
  if (!any && outages_.IsOver()) return;
  now_ = now;
  steady_now_ = SteadyNow();
  const auto forgotten = std::chrono::seconds(PublishTimeout()) * pubsub::TopicHealth::kForgotten;
  if (outages_.Look(steady_now_, Failing(outlets, lanes), forgotten)) Show();
  const auto is_ours = [](const std::string& name) { return TellsOfOutage(HashOfName(name)); };
  const std::optional<Outages::Line> line = outages_.TakeLine(is_ours, Scale());
  if (line) Write(*line);
  if (outages_.next_look() != kNever) next_look_ = At(outages_.next_look());
}

std::vector<Outages::Failing> OutageWatch::Failing(const Outlets& outlets,
                                                   const std::vector<LanePointer>& lanes) {
  std::vector<Outages::Failing> failing;
  for (const auto& outlet : outlets) {
    if (!Fails(*outlet)) continue;
    for (const pubsub::FailingTopic& topic : outlet->client()->FailingTopics()) {
      for (const LanePointer& lane : lanes) {
        const Publication& publication = lane->publication();
        if (lane->topic() != topic.topic || publication.credential != outlet->credential()) {
          continue;
        }
        if (failing.empty() || failing.back().publication != publication.name) {
          failing.push_back({publication.name, false, ToMoment(topic.since),
                             ToMoment(topic.next_try),
                             Shortened(ServerText(topic.error), kMaxShownError)});
        }
        failing.back().waits = failing.back().waits || lane->WaitsForAnswer();
      }
    }
  }
  return failing;
}

void OutageWatch::Show() const {
  std::vector<ShownOutage> shown;
  for (const Outages::Failing& one : outages_.outages()) {
    shown.push_back({HashOfName(one.publication), At(one.since), At(one.next_try), one.error});
  }
  ShowOutages(shown);
}

void OutageWatch::Write(const Outages::Line& line) const {
  const bool single = line.publications.size() == 1;
  std::string message = Listed(line.publications);
  if (line.kind == Outages::Line::Kind::kEnds) {
    message +=
        (single ? " has" : " have") + (" resumed after " + std::to_string(line.lasted.count()));
    Pg([&] { ereport(LOG, (errmsg("%s s", message.c_str()))); });
    return;
  }
  message += single ? " is " : " are ";
  if (line.kind == Outages::Line::Kind::kGoesOn) message += "still ";
  message += "retrying: " + line.first.error;
  const std::string detail = "There has been no answer since " + TimeText(At(line.first.since)) +
                             ". The next attempt is at " + TimeText(At(line.first.next_try)) + ".";
  Pg([&] {
    ereport(WARNING, (errmsg("%s", message.c_str()), errdetail_internal("%s", detail.c_str()),
                      errhint("Events wait and are published as soon as Pub/Sub answers. See "
                              "postbox.publication_status and postbox.endpoint.")));
  });
}

}  // namespace postbox::publisher
