#include "worker/pubsub/publish/publish_scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/rules/error_class.h"
#include "proto/rules/limits.h"
#include "proto/rules/wire_size.h"
#include "worker/pubsub/publish/publish_scheduler_world.h"

namespace postbox::pubsub {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(PublishScheduler, AKeyHasOneRequestInFlightAndWhatPilesUpGoesIntoTheNext) {
  World world;
  world.Add(1, "a");
  world.scheduler.Pump();
  for (std::uint64_t tag = 2; tag <= 5; ++tag) {
    world.Add(tag, "a");
    world.scheduler.Pump();
  }
  const Sent first = world.Next();
  EXPECT_EQ(first.tags, Tags({1}));
  EXPECT_TRUE(world.sent.empty());
  world.Ok(first);
  const Sent second = world.Next();
  EXPECT_EQ(second.tags, Tags({2, 3, 4, 5}));
  EXPECT_EQ(second.channel, first.channel);
  world.Ok(second);
  EXPECT_EQ(world.Take(), "1:published 2:published 3:published 4:published 5:published");
  EXPECT_FALSE(world.scheduler.NextWake());
}

TEST(PublishScheduler, KeysDoNotWaitForEachOther) {
  World world({.least_requests = 400});
  for (std::uint64_t tag = 0; tag < 40; ++tag) world.Add(tag, "key-" + std::to_string(tag));
  world.Add(100, "key-0", "data", "projects/p/topics/another");
  world.scheduler.Pump();
  EXPECT_EQ(world.sent.size(), 41u);
}

TEST(PublishScheduler, ARequestHasAtMostAThousandMessages) {
  World world;
  for (std::uint64_t tag = 0; tag < 1001; ++tag) world.Add(tag, "a");
  world.scheduler.Pump();
  const Sent first = world.Next();
  EXPECT_EQ(first.tags.size(), 1000u);
  world.Ok(first);
  EXPECT_EQ(world.Next().tags, Tags({1000}));
}

TEST(PublishScheduler, ARequestIsFilledToTheLastByteAndNotBeyond) {
  const std::size_t room = kMaxRequestBytes - EmptyRequestSize(sizeof(kTopic) - 1);
  // Two messages of this size, each 4 + 4 bytes of tags and lengths, 3 for the key "a".
  const std::size_t each = room / 2;
  const std::string data(each - 5 - 5 - 3, 'd');
  ASSERT_EQ(MessageSizeInRequest(
                MessageSize(data, std::vector<std::pair<std::string, std::string>>(), "a")),
            each);
  for (const int extra : {0, 1}) {
    World world;
    world.Add(1, "a", data);
    world.Add(2, "a", data + std::string((room - 2 * each) + static_cast<std::size_t>(extra), 'd'));
    world.scheduler.Pump();
    const Sent request = world.Next();
    if (extra == 0) {
      EXPECT_EQ(request.tags, Tags({1, 2}));
      EXPECT_EQ(request.size, kMaxRequestBytes);
    } else {
      EXPECT_EQ(request.tags, Tags({1}));
    }
  }
}

TEST(PublishScheduler, MessagesWithoutAKeyHaveSeveralRequestsInFlight) {
  World world({.keyless_requests = 4});
  std::uint64_t tag = 0;
  for (int i = 0; i < 6; ++i) {
    world.Add(++tag, "");
    world.scheduler.Pump();
  }
  ASSERT_EQ(world.sent.size(), 4u);
  world.Ok(world.sent[2]);
  ASSERT_EQ(world.sent.size(), 5u);
  EXPECT_EQ(world.sent[4].tags, Tags({5, 6}));
  world.Error(world.sent[0], kNotFound);
  EXPECT_EQ(world.Take(), "3:published 1:broken");
  world.Add(++tag, "");
  world.scheduler.Pump();
  EXPECT_EQ(world.sent.size(), 6u) << "a failure stops nothing where there is no order";
}

TEST(PublishScheduler, KeysThatFindNoFreeRequestWaitInLineAndPileUp) {
  World world({.channels = 1, .streams_per_channel = 1});
  world.Add(1, "a");
  world.Add(2, "b");
  world.Add(3, "c");
  world.scheduler.Pump();
  world.Add(4, "c");
  world.Add(5, "b");
  const Sent first = world.Next();
  EXPECT_TRUE(world.sent.empty());
  world.Ok(first);
  const Sent second = world.Next();
  EXPECT_EQ(second.tags, Tags({2, 5}));
  world.Ok(second);
  EXPECT_EQ(world.Next().tags, Tags({3, 4}));
}

TEST(PublishScheduler, AKeyWithAnUrgentMessageHasEveryOtherTurn) {
  World world({.channels = 1, .streams_per_channel = 1});
  for (std::uint64_t tag = 1; tag <= 4; ++tag) world.Add(tag, "k" + std::to_string(tag));
  world.scheduler.Pump();
  for (std::uint64_t tag = 11; tag <= 13; ++tag) world.AddUrgent(tag, "k" + std::to_string(tag));
  world.AddUrgent(14, "k4");
  Tags order;
  while (!world.sent.empty()) {
    const Sent request = world.Next();
    order.insert(order.end(), request.tags.begin(), request.tags.end());
    world.Ok(request);
  }
  EXPECT_EQ(order, Tags({1, 11, 2, 12, 3, 13, 4, 14})) << "a key stays in order";
}

TEST(PublishScheduler, UrgentMessagesWithoutAKeyGoBeforeOthersThatWait) {
  World world({.keyless_requests = 1});
  world.Add(1, "");
  world.scheduler.Pump();
  world.Add(2, "");
  world.Add(3, "");
  for (std::uint64_t tag = 11; tag <= 12; ++tag) world.AddUrgent(tag, "");
  world.Ok(world.Next());
  EXPECT_EQ(world.Next().tags, Tags({11, 12, 2, 3}));
}

TEST(PublishScheduler, ATopicThatHasYetToAnswerGetsItsGuaranteedPartAndCostsAnotherNothing) {
  World world({.channels = 1, .streams_per_channel = 20});
  constexpr char kOther[] = "projects/p/topics/other";
  world.Add(1, "first", "data", kOther);
  world.scheduler.Pump();
  world.Ok(world.Next());
  for (std::uint64_t tag = 10; tag < 60; ++tag) world.Add(tag, "k" + std::to_string(tag));
  world.scheduler.Pump();
  EXPECT_EQ(world.sent.size(), 2u);
  const Sent silent = world.sent.back();
  for (std::uint64_t tag = 60; tag < 99; ++tag) {
    world.Add(tag, "k" + std::to_string(tag), "data", kOther);
  }
  world.scheduler.Pump();
  EXPECT_EQ(world.sent.size(), 2u + 16u) << "of 20";
  world.sent.clear();
  world.Ok(silent);
  EXPECT_FALSE(world.sent.empty()) << "it has answered, and its next request is sent";
}

TEST(PublishScheduler, ATopicThatDoesNotAnswerLeavesRequestsForAnother) {
  World world({.channels = 1, .streams_per_channel = 20});
  constexpr char kOther[] = "projects/p/topics/other";
  world.Add(1, "first", "data", kOther);
  world.Add(2, "first");
  world.scheduler.Pump();
  world.Ok(world.Next());
  world.Ok(world.Next());
  for (std::uint64_t tag = 10; tag < 60; ++tag) world.Add(tag, "k" + std::to_string(tag));
  world.scheduler.Pump();
  EXPECT_EQ(world.sent.size(), 16u) << "of 20";
  for (std::uint64_t tag = 2; tag < 5; ++tag) {
    world.Add(tag, "second", "data", kOther);
    world.scheduler.Pump();
    ASSERT_EQ(world.sent.back().tags, Tags{tag});
    world.Ok(world.sent.back());
    world.sent.pop_back();
  }
}

TEST(PublishScheduler, AnInvalidArgumentIsBisectedAndOnlyTheBrokenEventIsRejected) {
  World world;
  for (std::uint64_t tag = 1; tag <= 8; ++tag) world.Add(tag, "a");
  world.Add(9, "");
  world.scheduler.Pump();
  // Event 6 is broken: 1..8, 1..4, 5..8, 5..6, 5, 6. Then the key stops.
  std::vector<Tags> requests;
  while (!world.sent.empty()) {
    const Sent request = world.Next();
    if (request.key.empty()) continue;
    requests.push_back(request.tags);
    const bool broken = std::count(request.tags.begin(), request.tags.end(), 6) != 0;
    broken ? world.Error(request, kInvalidArgument, "bad") : world.Ok(request);
  }
  EXPECT_EQ(requests, (std::vector<Tags>{
                          {1, 2, 3, 4, 5, 6, 7, 8}, {1, 2, 3, 4}, {5, 6, 7, 8}, {5, 6}, {5}, {6}}));
  EXPECT_EQ(world.done[5].result->error, "INVALID_ARGUMENT: bad");
  EXPECT_EQ(
      world.Take(),
      "1:published 2:published 3:published 4:published 5:published 6:rejected 7:behind 8:behind");
}

TEST(PublishScheduler, WithoutAKeyTheRestOfABisectedRequestIsPublished) {
  World world;
  for (std::uint64_t tag = 1; tag <= 5; ++tag) world.Add(tag, "");
  world.scheduler.Pump();
  while (!world.sent.empty()) {
    const Sent request = world.Next();
    const bool broken = std::count(request.tags.begin(), request.tags.end(), 2) != 0;
    broken ? world.Error(request, kInternal, "string field contains invalid UTF-8")
           : world.Ok(request);
  }
  std::map<std::uint64_t, PublishStatus> statuses;
  for (const Done& one : world.done) statuses[one.result->tag] = one.result->status;
  EXPECT_EQ(statuses.size(), 5u);
  for (const auto& [tag, status] : statuses) {
    EXPECT_EQ(status, tag == 2 ? PublishStatus::kRejected : PublishStatus::kPublished) << tag;
  }
}

TEST(PublishScheduler, ABrokenTopicIsToldAtOnceForTheRequestAndWhatFollowsIsBehind) {
  for (const int code : {kNotFound, kPermissionDenied, kUnauthenticated, kFailedPrecondition}) {
    World world;
    world.Add(1, "a");
    world.Add(2, "a");
    world.scheduler.Pump();
    world.Add(3, "a");
    world.Error(world.Next(), code);
    EXPECT_EQ(world.Take(), "1:broken 2:broken 3:behind") << StatusCodeName(code);
    EXPECT_TRUE(world.sent.empty());
  }
}

TEST(PublishScheduler, AnAnswerWithAnotherNumberOfMessageIdsIsUnknown) {
  World world;
  world.Add(1, "a");
  world.Add(2, "a");
  world.scheduler.Pump();
  world.scheduler.OnResponse(world.Next().id, {kOk, "", 1});
  EXPECT_EQ(world.done[0].result->error,
            "INTERNAL: the broker answered 1 message ids to a request of 2 messages");
  EXPECT_EQ(world.Take(), "1:unknown 2:unknown");
}

TEST(PublishScheduler, AFailedKeyIsCleanOnceAllItsResultsAreTaken) {
  World world;
  world.Add(1, "a");
  world.scheduler.Pump();
  world.Add(2, "a");
  world.Error(world.Next(), kNotFound);
  world.Add(3, "a");  // the caller does not know yet
  world.Add(4, "b");
  world.scheduler.Pump();
  EXPECT_EQ(world.Next().tags, Tags({4})) << "other keys go on";
  EXPECT_EQ(world.Take(), "1:broken 2:behind 3:behind");
  world.Add(5, "a");
  world.scheduler.Pump();
  EXPECT_EQ(world.Next().tags, Tags({5}));
}

TEST(PublishScheduler, AMessageOverALimitIsRejectedWhenItsTurnComes) {
  World world;
  world.Add(1, "a");
  world.AddInvalid(2, "a");
  world.Add(3, "a");
  world.AddInvalid(4, "");
  world.Add(5, "");
  world.scheduler.Pump();
  EXPECT_EQ(world.Take(), "4:rejected");
  const Sent first = world.Next();
  EXPECT_EQ(first.tags, Tags({1}));
  EXPECT_EQ(world.Next().tags, Tags({5}));
  world.Ok(first);
  EXPECT_TRUE(world.sent.empty());
  EXPECT_NE(world.done[1].result->error.find("INVALID_ARGUMENT: value of attribute \"bytes\""),
            std::string::npos);
  EXPECT_EQ(world.Take(), "1:published 2:rejected 3:behind");
}

TEST(PublishScheduler, CancelEndsEverythingAndTheAnswersThatStillComeCount) {
  World world({.channels = 1, .streams_per_channel = 5});
  world.Add(1, "published anyway");
  world.Add(2, "lost");
  world.Add(3, "delayed");
  world.Add(4, "");
  world.scheduler.Pump();
  const Sent anyway = world.Next();
  const Sent lost = world.Next();
  world.Error(world.Next(), kUnavailable);
  const Sent keyless = world.Next();
  world.Add(11, "published anyway");
  world.Add(12, "lost");
  world.Add(13, "delayed");
  world.Add(15, "never sent");
  world.scheduler.Cancel();
  EXPECT_EQ(world.aborted, (std::set<std::uint64_t>{anyway.id, lost.id, keyless.id}));
  EXPECT_EQ(world.done.size(), 3u);
  EXPECT_EQ(world.done[0].result->tag, 3u);
  EXPECT_EQ(world.done[1].result->tag, 13u);
  world.Take();
  world.Ok(anyway);
  world.Error(lost, kCancelled);
  world.Error(keyless, kCancelled);
  EXPECT_EQ(world.Take(), "1:published 11:unknown 2:unknown 12:unknown 4:unknown");
  EXPECT_TRUE(world.sent.empty());
  EXPECT_FALSE(world.scheduler.NextWake());
  for (const char* key : {"published anyway", "lost", "delayed", "", "never sent"})
    world.Add(20, key);
  world.scheduler.Pump();
  EXPECT_EQ(world.sent.size(), 5u) << "it stays usable";
}

// A scheduler under random messages, answers, delays and cancellations, and what must hold
// meanwhile.
class RandomRun {
 public:
  // At most `most` requests are in flight. Of `percent` of them the messages are published; the
  // clock goes on by `longest_step` at most.
  RandomRun(unsigned seed, const PublishScheduler::Options& options, std::size_t most,
            unsigned percent, milliseconds longest_step)
      : random_(seed),
        percent_(percent),
        longest_step_(longest_step),
        most_(most),
        world_(options) {}

  void Step() {
    if (Chance(50)) {
      AddMessage();
    } else if (Chance(60) && !open_.empty()) {
      AnswerOne();
    } else if (Chance(20)) {
      world_.Advance(milliseconds(random_() % longest_step_.count()));
    } else if (Chance(30)) {
      TakeResults();
    } else if (Chance(1)) {
      world_.scheduler.Cancel();
      NoteFailures();
      world_.Advance(milliseconds(1));
    }
    NoteFailures();
    CollectSent();
  }

  // Answers every request until there is nothing left to do.
  void RunDry() {
    for (int round = 0; round < 10'000 && (results_.size() < next_tag_ || !open_.empty());
         ++round) {
      world_.scheduler.Pump();
      CollectSent();
      for (const Sent& request : std::exchange(open_, {})) world_.Ok(request);
      CollectSent();
      world_.Advance(milliseconds(500));
      for (const Done& one : world_.done) ++results_[one.result->tag];
      world_.Take();
      failed_at_.clear();
    }
  }

  void CheckThatEachMessageHasOneResult() {
    EXPECT_EQ(results_.size(), next_tag_);
    for (const auto& [tag, count] : results_) EXPECT_EQ(count, 1) << "message " << tag;
    world_.Advance(3 * ChannelLoads::kCloseAfter);
    EXPECT_FALSE(world_.scheduler.NextWake());
  }

  // Whether two requests were on one channel.
  bool shared_channel() const { return shared_channel_; }

 private:
  bool Chance(unsigned percent) { return random_() % 100 < percent; }

  void AddMessage() {
    constexpr int kKeys = 6;  // key 0 is the empty one
    const int key = static_cast<int>(random_() % kKeys);
    const std::string name = key == 0 ? "" : "key-" + std::to_string(key);
    key_of_[++next_tag_] = name;
    Chance(3) ? world_.AddInvalid(next_tag_, name) : world_.Add(next_tag_, name);
    NoteFailures();
    if (Chance(60)) world_.scheduler.Pump();
  }

  // A failure in this very answer is noted by what the scheduler delivers, before CollectSent()
  // sees what it sends next.
  void AnswerOne() {
    const std::size_t at = random_() % open_.size();
    const Sent request = open_[at];
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(at));
    if (Chance(percent_)) {
      world_.Ok(request);
    } else {
      constexpr int kCodes[] = {kUnavailable, kInvalidArgument, kNotFound, kDeadlineExceeded,
                                kInvalidArgument};
      world_.Error(request, kCodes[random_() % 5]);
    }
  }

  void TakeResults() {
    NoteFailures();
    for (const Done& one : world_.done) {
      ++results_[one.result->tag];
      const std::string& key = key_of_[one.result->tag];
      if (key.empty()) continue;
      EXPECT_LT(last_published_[key], one.result->tag) << "results of a key are in its order";
      last_published_[key] = one.result->tag;
    }
    world_.Take();
    // What the caller knows now does not forbid sending any more when nothing of the key is
    // outstanding. A failed key has no request in flight, so all of it was taken just now.
    failed_at_.clear();
  }

  void NoteFailures() {
    for (const Done& one : world_.done) {
      const std::string& key = key_of_[one.result->tag];
      if (!key.empty() && one.result->status != PublishStatus::kPublished)
        failed_at_.try_emplace(key, one.result->tag);
    }
  }

  void CollectSent() {
    for (Sent& request : world_.sent) {
      for (const Sent& other : open_) {
        EXPECT_TRUE(request.key.empty() || request.key != other.key)
            << "two requests in flight for one key";
        shared_channel_ |= request.channel == other.channel;
      }
      EXPECT_FALSE(failed_at_.contains(request.key))
          << "sent behind a failure that the caller does not know";
      open_.push_back(std::move(request));
    }
    world_.sent.clear();
    EXPECT_LE(open_.size(), most_);
  }

  std::mt19937 random_;
  const unsigned percent_;
  const milliseconds longest_step_;
  const std::size_t most_;  // requests
  bool shared_channel_ = false;
  World world_;
  std::uint64_t next_tag_ = 0;
  std::map<std::uint64_t, std::string> key_of_;
  std::map<std::uint64_t, int> results_;
  std::map<std::string, std::uint64_t> last_published_;
  std::map<std::string, std::uint64_t> failed_at_;  // first failure that the caller does not know
  std::vector<Sent> open_;
};

TEST(PublishScheduler, UnderRandomFailuresEveryMessageHasOneResultAndNoKeyIsOutOfOrder) {
  const PublishScheduler::Options few{
      .channels = 2, .streams_per_channel = 3, .publish_timeout = seconds(20)};
  // Requests wait for a stream, and get them in any order.
  const PublishScheduler::Options waiting{
      .channels = 8, .streams_per_channel = 1, .least_requests = 2, .publish_timeout = seconds(20)};
  int waited = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const bool is_waiting = seed % 2 == 0;
    RandomRun run(seed, is_waiting ? waiting : few, is_waiting ? 16 : 6, is_waiting ? 90 : 60,
                  milliseconds(is_waiting ? 40 : 4000));
    for (int step = 0; step < 3000; ++step) {
      run.Step();
      if (testing::Test::HasFailure()) FAIL() << "step " << step;
    }
    waited += is_waiting && run.shared_channel();
    run.RunDry();
    run.CheckThatEachMessageHasOneResult();
  }
  EXPECT_GE(waited, 25);
}

}  // namespace
}  // namespace postbox::pubsub
