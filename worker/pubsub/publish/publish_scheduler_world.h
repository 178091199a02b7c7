// The host of a PublishScheduler for tests: a clock that the test moves, and requests that the test
// answers.
#ifndef POSTBOX_WORKER_PUBSUB_PUBLISH_PUBLISH_SCHEDULER_WORLD_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISH_PUBLISH_SCHEDULER_WORLD_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/rules/error_class.h"
#include "proto/rules/limits.h"
#include "proto/rules/wire_size.h"
#include "worker/pubsub/publish/publish_scheduler.h"

namespace postbox::pubsub {

using Tags = std::vector<std::uint64_t>;

inline constexpr char kTopic[] = "projects/p/topics/catalog.video.events";

struct Sent {
  std::uint64_t id;
  int channel;
  std::string topic;
  std::string key;
  Tags tags;
  std::size_t size;
  std::chrono::milliseconds timeout;
};

struct Tagged : OutgoingMessage {
  std::uint64_t tag = 0;
};

struct Done {
  const Tagged* result;
  OutgoingQueue* queue;
};

struct Failing {
  PublishScheduler::TimePoint since, next_try;
  std::string error;
};

class World : public PublishHost {
 public:
  explicit World(PublishScheduler::Options options = {}) : scheduler(options, this) {}

  PublishScheduler::TimePoint Now() override { return now; }
  double Random() override { return 1.0; }
  void Send(const PublishHost::Request& request) override {
    Sent copy{request.id, request.channel, request.topic,  request.messages.front()->ordering_key,
              {},         request.size,    request.timeout};
    std::size_t size = EmptyRequestSize(request.topic.size());
    for (const OutgoingMessage* message : request.messages) {
      copy.tags.push_back(static_cast<const Tagged*>(message)->tag);
      size += MessageSizeInRequest(message->encoded.size());
      EXPECT_EQ(message->ordering_key, copy.key) << "a request has one ordering key";
      EXPECT_EQ(message->topic, copy.topic);
    }
    EXPECT_EQ(size, request.size);
    EXPECT_LE(request.size, kMaxRequestBytes);
    EXPECT_LE(request.messages.size(), kMaxRequestMessages);
    EXPECT_GT(request.timeout.count(), 0);
    sent.push_back(std::move(copy));
  }
  void Abort(std::uint64_t request_id) override { aborted.insert(request_id); }
  void CloseChannel(int channel) override {
    for (const Sent& request : sent) EXPECT_NE(request.channel, channel) << "it is in use";
    closed.push_back(channel);
  }
  void Deliver(OutgoingMessage* message, OutgoingQueue* queue) override {
    done.push_back({static_cast<const Tagged*>(message), queue});
  }
  void TopicFails(const std::string& topic, PublishScheduler::TimePoint since,
                  PublishScheduler::TimePoint next_try, const std::string& error) override {
    failing[topic] = {since, next_try, error};
  }
  void TopicAnswers(const std::string& topic) override {
    EXPECT_EQ(failing.erase(topic), 1u) << topic << " did not fail";
  }

  void Add(std::uint64_t tag, const std::string& key, const std::string& data = "data",
           std::string_view topic = kTopic) {
    AddMessage(tag, MakeOutgoingMessage(topic, key, data, {}));
  }
  void AddUrgent(std::uint64_t tag, const std::string& key) {
    OutgoingMessage message = MakeOutgoingMessage(kTopic, key, "data", {});
    message.urgent = true;
    AddMessage(tag, std::move(message));
  }
  void AddInvalid(std::uint64_t tag, const std::string& key) {
    AddMessage(tag, MakeOutgoingMessage(kTopic, key, "data", {{"bytes", "\xFF"}}));
  }

  // Takes the oldest unanswered request out of the list.
  Sent Next() {
    EXPECT_FALSE(sent.empty()) << "nothing was sent";
    if (sent.empty()) return {};
    Sent request = sent.front();
    sent.erase(sent.begin());
    return request;
  }
  void Ok(const Sent& request) { scheduler.OnResponse(request.id, {kOk, "", request.tags.size()}); }
  void Error(const Sent& request, int code, const std::string& text = "no") {
    scheduler.OnResponse(request.id, {code, text, std::nullopt});
  }
  // Moves the clock forward, and calls the scheduler at each time that it asks for.
  void Advance(std::chrono::nanoseconds duration) {
    const auto end = now + duration;
    while (const auto wake = scheduler.NextWake()) {
      if (*wake > end) break;
      now = std::max(now, *wake);
      scheduler.OnTime();
    }
    now = end;
  }
  // How often the messages were sent again though they may have been taken, of each that is done,
  // with a + if it may have been taken.
  std::string SentAgain() const {
    std::string text;
    for (const Done& one : done) {
      text += (text.empty() ? "" : " ") + std::to_string(one.result->sent_again) +
              (one.result->maybe_taken ? "+" : "");
    }
    return text;
  }
  // Takes the results so far and returns them as "tag:status".
  std::string Take() {
    static constexpr const char* kNames[] = {"published", "rejected", "behind",
                                             "broken",    "unknown",  "unreachable"};
    std::string text;
    for (const Done& one : std::exchange(done, {})) {
      text += (text.empty() ? "" : " ") + std::to_string(one.result->tag) + ":" +
              kNames[static_cast<int>(one.result->status)];
      EXPECT_EQ(one.result->error.empty(), one.result->status == PublishStatus::kPublished);
      scheduler.Taken(one.queue, 1);
    }
    return text;
  }

 private:
  void AddMessage(std::uint64_t tag, OutgoingMessage&& message) {
    messages_.push_back({std::move(message), tag});
    messages_.back().meter = meter;
    if (patience.count() > 0) messages_.back().send_by = now + patience;
    scheduler.Add(&messages_.back());
  }

  std::deque<Tagged> messages_;  // of the whole test

 public:
  PublishScheduler::TimePoint now{std::chrono::seconds(1000)};
  std::chrono::milliseconds patience{
      0};                   // of the messages that are added, until they are sent; 0: without end
  std::uint16_t meter = 0;  // of the messages that are added
  std::vector<Sent> sent;
  std::vector<Done> done;
  std::map<std::string, Failing> failing;
  std::set<std::uint64_t> aborted;
  std::vector<int> closed;  // channels
  PublishScheduler scheduler;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISH_PUBLISH_SCHEDULER_WORLD_H_
