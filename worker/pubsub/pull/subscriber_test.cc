#include "worker/pubsub/pull/subscriber.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "worker/pubsub/pull/fake_subscriber_service.h"

namespace postbox::pubsub {
namespace {

namespace api = google::pubsub::v1;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr int kAcknowledge = -1;
constexpr int kNack = 0;
constexpr int kExtend = 1;
constexpr char kSubscription[] = "projects/p/subscriptions/video.events.reader";

class SubscriberTest : public ::testing::Test {
 protected:
  void Start(SubscriberOptions options = {}) {
    options.endpoint = Endpoint{service_.address(), true};
    options.subscription = kSubscription;
    SubscriberCallbacks callbacks;
    callbacks.on_messages = [this](std::vector<ReceivedMessage> messages) {
      service_.Locked(
          [&] { std::move(messages.begin(), messages.end(), std::back_inserter(received_)); });
    };
    callbacks.on_settled = [this](uint64_t handle, Settlement settlement) {
      service_.Locked([&] { settled_.emplace_back(handle, settlement); });
    };
    callbacks.on_connected = [this](bool, bool) { service_.Locked([&] { ++connected_; }); };
    callbacks.on_failure = [this](const std::string& error) {
      service_.Locked([&] { failures_.push_back(error); });
    };
    callbacks.on_fatal = [this](const std::string& error) {
      service_.Locked([&] { fatal_.push_back(error); });
    };
    std::string error;
    subscriber_ = Subscriber::Create(options, callbacks, &error);
    ASSERT_NE(subscriber_, nullptr) << error;
    ASSERT_TRUE(WaitForSession(1));
  }

  bool WaitForSession(size_t count) {
    return service_.WaitFor(
        [&] { return service_.sessions.size() >= count && service_.sessions[count - 1]->first; });
  }

  // A response with messages "id:key", whose ack ids are "ack-id".
  static api::StreamingPullResponse Response(std::initializer_list<std::string> messages,
                                             bool exactly_once = false, bool ordered = false) {
    api::StreamingPullResponse response;
    response.mutable_subscription_properties()->set_exactly_once_delivery_enabled(exactly_once);
    response.mutable_subscription_properties()->set_message_ordering_enabled(ordered);
    for (const auto& text : messages) {
      auto* received = response.add_received_messages();
      const std::string id = text.substr(0, text.find(':'));
      received->set_ack_id("ack-" + id);
      // "m1'" is the second delivery of m1.
      received->mutable_message()->set_message_id(id.substr(0, id.find('\'')));
      received->mutable_message()->set_data("data of " + id);
      if (text.find(':') != std::string::npos) {
        received->mutable_message()->set_ordering_key(text.substr(text.find(':') + 1));
      }
    }
    return response;
  }
  void Send(size_t session, api::StreamingPullResponse response) {
    service_.Locked([&] { service_.sessions[session]->Send(std::move(response)); });
  }
  std::vector<std::string> ReceivedIds() {
    return service_.Locked([&] {
      std::vector<std::string> ids;
      for (const auto& message : received_) ids.emplace_back(message.message_id);
      return ids;
    });
  }
  bool WaitForMessages(size_t count) {
    return service_.WaitFor([&] { return received_.size() >= count; });
  }
  bool WaitUntilAsked(int kind, const std::string& id) {
    return service_.WaitFor([&] { return service_.Asked(kind, id); });
  }
  uint64_t Handle(size_t i) {
    return service_.Locked([&] { return received_.at(i).handle; });
  }

  FakeSubscriberService service_;
  std::vector<ReceivedMessage> received_;
  std::vector<std::pair<uint64_t, Settlement>> settled_;
  int connected_ = 0;
  std::vector<std::string> failures_;
  std::vector<std::string> fatal_;
  std::unique_ptr<Subscriber> subscriber_;  // destroyed before the objects that its callbacks use
};

TEST_F(SubscriberTest, TheFirstRequestSaysWhatTheServiceWantsToKnow) {
  Start({.max_outstanding_messages = 17, .max_outstanding_bytes = 4096});
  service_.Locked([&] {
    const auto& first = *service_.sessions[0]->first;
    EXPECT_EQ(first.subscription(), kSubscription);
    EXPECT_EQ(first.stream_ack_deadline_seconds(), 60);
    EXPECT_EQ(first.max_outstanding_messages(), 17);
    EXPECT_EQ(first.max_outstanding_bytes(), 4096);
    EXPECT_EQ(first.protocol_version(), 1);
    EXPECT_EQ(first.client_id().size(), 36u);
  });
}

TEST_F(SubscriberTest, AMessageIsHandedOnConfirmedAndAcked) {
  Start();
  auto response = Response({"m1:k"});
  auto* received = response.mutable_received_messages(0);
  received->set_delivery_attempt(3);
  received->mutable_message()->mutable_publish_time()->set_seconds(1700000000);
  (*received->mutable_message()->mutable_attributes())["b"] = "2";
  (*received->mutable_message()->mutable_attributes())["a"] = "1";
  Send(0, response);
  ASSERT_TRUE(WaitForMessages(1));
  service_.Locked([&] {
    EXPECT_EQ(received_[0].message_id, "m1");
    EXPECT_EQ(received_[0].data, "data of m1");
    EXPECT_EQ(received_[0].ordering_key, "k");
    EXPECT_EQ(received_[0].delivery_attempt, 3);
    EXPECT_THAT(received_[0].attributes, ElementsAre(std::pair("a", "1"), std::pair("b", "2")));
    EXPECT_EQ(std::chrono::system_clock::to_time_t(received_[0].publish_time), 1700000000);
    EXPECT_EQ(connected_, 1);
  });
  EXPECT_TRUE(WaitUntilAsked(kExtend, "ack-m1"));
  subscriber_->Ack({Handle(0)});
  EXPECT_TRUE(WaitUntilAsked(kAcknowledge, "ack-m1"));
  EXPECT_TRUE(service_.WaitFor([&] { return settled_.size() == 1; }));
  EXPECT_EQ(settled_[0].second, Settlement::kDone);
  subscriber_->Ack({Handle(0)});  // once only
  subscriber_->Nack(Handle(0));
  subscriber_->Stop(std::chrono::seconds(60));
  EXPECT_FALSE(service_.Locked([&] { return service_.Asked(kNack, "ack-m1"); }));
}

TEST_F(SubscriberTest, AStreamThatEndsIsOpenedAgainWithTheSameClientId) {
  Start();
  Send(0, Response({"m1"}));
  service_.Locked([&] {
    service_.sessions[0]->End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "going away"));
  });
  ASSERT_TRUE(WaitForSession(2));
  service_.Locked([&] { service_.sessions[1]->End(grpc::Status::OK); });
  ASSERT_TRUE(WaitForSession(3));
  Send(2, Response({"m2"}));
  ASSERT_TRUE(WaitForMessages(2));
  service_.Locked([&] {
    EXPECT_EQ(service_.sessions[0]->first->client_id(), service_.sessions[2]->first->client_id());
    EXPECT_THAT(failures_,
                ElementsAre("UNAVAILABLE: going away", "OK: the server ended the stream"));
    EXPECT_THAT(fatal_, IsEmpty());
  });
  subscriber_->Ack({Handle(0)});  // received on the first stream
  EXPECT_TRUE(WaitUntilAsked(kAcknowledge, "ack-m1"));
}

TEST_F(SubscriberTest, ACodeThatDoesNotPassEndsTheSubscriber) {
  Start();
  Send(0, Response({"m1"}));
  ASSERT_TRUE(WaitForMessages(1));
  service_.Locked([&] {
    service_.sessions[0]->End(grpc::Status(grpc::StatusCode::NOT_FOUND, "no such subscription"));
  });
  ASSERT_TRUE(service_.WaitFor([&] { return !fatal_.empty(); }));
  subscriber_->Ack({Handle(0)});
  EXPECT_TRUE(WaitUntilAsked(kAcknowledge, "ack-m1"));
  subscriber_->Stop(std::chrono::seconds(60));
  EXPECT_THAT(fatal_, ElementsAre("NOT_FOUND: no such subscription"));
  EXPECT_THAT(failures_, IsEmpty());
  EXPECT_EQ(service_.sessions.size(), 1u);
}

TEST_F(SubscriberTest, AStreamThatStopsAnsweringPingsIsOpenedAgain) {
  service_.answer_pings = true;
  Start({.ping_interval = std::chrono::milliseconds(20),
         .ping_timeout = std::chrono::milliseconds(500)});
  // On a very slow machine the stream is given up earlier, which is correct, too.
  ASSERT_TRUE(service_.WaitFor(
      [&] { return service_.sessions.size() > 1 || service_.sessions[0]->pings >= 3; }));
  service_.Locked([&] { service_.sessions[0]->answer_pings = false; });
  ASSERT_TRUE(WaitForSession(2));
  EXPECT_TRUE(service_.WaitFor([&] {
    return !failures_.empty() && failures_[0] == "UNAVAILABLE: the stream did not answer a ping";
  }));
}

TEST_F(SubscriberTest, AStreamThatIsOpenedAgainAndNeverAnswersIsOpenedOnceMore) {
  service_.answer_pings = true;
  Start({.ping_interval = std::chrono::milliseconds(20),
         .ping_timeout = std::chrono::milliseconds(500)});
  ASSERT_TRUE(service_.WaitFor(
      [&] { return service_.sessions.size() > 1 || service_.sessions[0]->pings >= 3; }));
  service_.Locked([&] {
    service_.answer_pings = false;
    service_.sessions[0]->answer_pings = false;
  });
  // The second stream answers nothing, not even once.
  EXPECT_TRUE(WaitForSession(3));
}

TEST_F(SubscriberTest, AnAnswerToAPingCountsAlsoIfMessagesCameBeforeIt) {
  Start({.ping_interval = std::chrono::milliseconds(300),
         .ping_timeout = std::chrono::milliseconds(50)});
  ASSERT_TRUE(service_.WaitFor([&] { return service_.sessions[0]->pings >= 1; }));
  service_.Locked([&] {
    service_.sessions[0]->Send(Response({"m1"}));
    service_.sessions[0]->Send(api::StreamingPullResponse());
  });
  // Which is why the stream is opened again when it falls silent.
  EXPECT_TRUE(WaitForSession(2));
}

// A stall within the first interval was never noticed: the server counted as one that answers none.
TEST_F(SubscriberTest, AStreamIsPingedAsSoonAsItIsOpenAndAsSoonAsItHasAnswered) {
  Start({.ping_interval = std::chrono::hours(1)});
  EXPECT_TRUE(service_.WaitFor([&] { return service_.sessions[0]->pings == 1; }));
  Send(0, Response({"m1"}));
  EXPECT_TRUE(service_.WaitFor([&] { return service_.sessions[0]->pings == 2; }));
}

TEST_F(SubscriberTest, AFirstResponseThatComesAfterAPingIsNoAnswerToIt) {
  Start({.ping_interval = std::chrono::milliseconds(5),
         .ping_timeout = std::chrono::milliseconds(10)});
  ASSERT_TRUE(service_.WaitFor([&] { return service_.sessions[0]->pings >= 1; }));
  Send(0, Response({}));
  ASSERT_TRUE(service_.WaitFor([&] { return service_.sessions[0]->pings >= 50; }));
  EXPECT_EQ(service_.sessions.size(), 1u);
  EXPECT_THAT(failures_, IsEmpty());
}

// A good response came first each time, which began the delays again.
TEST_F(SubscriberTest, AStreamWhoseResponseCannotBeParsedIsOpenedAgainAtGrowingIntervals) {
  api::StreamingPullResponse odd;
  odd.GetReflection()->MutableUnknownFields(&odd)->AddLengthDelimited(1, "\x0A\x7F");
  Start();
  const auto begin = std::chrono::steady_clock::now();
  for (size_t session = 0; session < 4; ++session) {
    ASSERT_TRUE(WaitForSession(session + 1));
    Send(session, Response({"m1"}));
    Send(session, odd);
  }
  ASSERT_TRUE(WaitForSession(5));
  // At least half of 100, 200, 400 and 800 ms; without growth it were 400 ms at most.
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(740));
  service_.Locked([&] {
    ASSERT_EQ(failures_.size(), 4u);
    EXPECT_EQ(failures_[3], "INTERNAL: a response of 4 bytes could not be parsed");
  });
}

TEST_F(SubscriberTest, AServerThatNeverAnsweredAPingIsNotGivenUp) {
  Start({.ping_interval = std::chrono::milliseconds(5),
         .ping_timeout = std::chrono::milliseconds(10)});
  // A response with a message does not count as the answer to a ping.
  Send(0, Response({"m1"}));
  ASSERT_TRUE(service_.WaitFor([&] { return service_.sessions[0]->pings >= 50; }));
  EXPECT_EQ(service_.sessions.size(), 1u);
  EXPECT_THAT(failures_, IsEmpty());
}

TEST_F(SubscriberTest, UnderExactlyOnceAMessageIsHandedOnAfterItsReceiptWasConfirmed) {
  service_.hold_answers = true;
  Start();
  Send(0, Response({"m1"}, /*exactly_once=*/true));
  ASSERT_TRUE(WaitUntilAsked(kExtend, "ack-m1"));
  EXPECT_THAT(ReceivedIds(), IsEmpty());
  service_.Locked([&] {
    EXPECT_EQ(service_.calls[0].deadline_seconds, 60);
    service_.hold_answers = false;
    service_.AnswerHeld();
  });
  ASSERT_TRUE(WaitForMessages(1));
}

TEST_F(SubscriberTest, UnderExactlyOnceAMessageWithoutReceiptIsNotHandedOn) {
  service_.answer = [](const FakeSubscriberService::AckCall& call) {
    if (call.deadline_seconds <= 0) return grpc::Status::OK;
    return FakeSubscriberService::AckFailure({{"ack-m1", "PERMANENT_FAILURE_INVALID_ACK_ID"}});
  };
  Start();
  Send(0, Response({"m1", "m2", "m3"}, /*exactly_once=*/true));
  ASSERT_TRUE(WaitForMessages(2));
  EXPECT_THAT(ReceivedIds(), ElementsAre("m2", "m3"));
}

TEST_F(SubscriberTest, AnExactlyOnceAckIsTriedAgainWhileItsFailureIsTransient) {
  bool failed = false;
  service_.answer = [&](const FakeSubscriberService::AckCall& call) {
    if (call.deadline_seconds >= 0) return grpc::Status::OK;
    std::map<std::string, std::string> results;
    for (const auto& id : call.ids) {
      if (id == "ack-m2") results[id] = "PERMANENT_FAILURE_INVALID_ACK_ID";
      if (id == "ack-m1" && !std::exchange(failed, true)) {
        results[id] = "TRANSIENT_FAILURE_ACK_DELAYED";
      }
    }
    return results.empty() ? grpc::Status::OK : FakeSubscriberService::AckFailure(results);
  };
  Start();
  Send(0, Response({"m1", "m2", "m3"}, /*exactly_once=*/true));
  ASSERT_TRUE(WaitForMessages(3));
  for (size_t i = 0; i < 3; ++i) subscriber_->Ack({Handle(i)});
  ASSERT_TRUE(service_.WaitFor([&] { return settled_.size() == 3; }));
  EXPECT_THAT(settled_, UnorderedElementsAre(std::pair(Handle(0), Settlement::kDone),
                                             std::pair(Handle(1), Settlement::kFailed),
                                             std::pair(Handle(2), Settlement::kDone)));
  EXPECT_TRUE(failed);
}

// With a service far away such acks took up what may be outstanding.
TEST_F(SubscriberTest, AnAckDoesNotWaitForAnEarlierOneOfItsKey) {
  service_.hold_answers = true;
  Start({.max_outstanding_messages = 1});
  for (const std::string id : {"m1", "m2"}) {
    Send(0, Response({id + ":k"}, false, /*ordered=*/true));
    ASSERT_TRUE(WaitForMessages(id == "m1" ? 1 : 2));
    subscriber_->Ack({Handle(id == "m1" ? 0 : 1)});
    EXPECT_TRUE(WaitUntilAsked(kAcknowledge, "ack-" + id));
  }
  EXPECT_TRUE(service_.Locked([&] { return settled_.empty(); }));
}

TEST_F(SubscriberTest, UnderExactlyOnceAnAckWaitsForTheEarlierOnesOfItsKey) {
  Start();
  Send(0, Response({"m1:k", "m2:k", "m3:l"}, /*exactly_once=*/true, /*ordered=*/true));
  ASSERT_TRUE(WaitForMessages(3));
  service_.Locked([&] { service_.hold_answers = true; });
  subscriber_->Ack({Handle(0)});
  ASSERT_TRUE(WaitUntilAsked(kAcknowledge, "ack-m1"));
  subscriber_->Ack({Handle(1)});
  subscriber_->Ack({Handle(2)});
  ASSERT_TRUE(WaitUntilAsked(kAcknowledge, "ack-m3"));
  service_.Locked([&] {
    EXPECT_FALSE(service_.Asked(kAcknowledge, "ack-m2"));
    service_.hold_answers = false;
    service_.AnswerHeld();
  });
  EXPECT_TRUE(WaitUntilAsked(kAcknowledge, "ack-m2"));
}

TEST_F(SubscriberTest, NoMoreThanTheBudgetIsInHand) {
  Start({.max_outstanding_messages = 2});
  Send(0, Response({"m1", "m2", "m3", "m4"}));
  Send(0, Response({"m5"}));
  ASSERT_TRUE(WaitForMessages(2));
  // The receipts of all four were sent, so the others have arrived and are held back.
  ASSERT_TRUE(WaitUntilAsked(kExtend, "ack-m4"));
  EXPECT_THAT(ReceivedIds(), ElementsAre("m1", "m2"));
  subscriber_->Ack({Handle(0)});
  ASSERT_TRUE(WaitForMessages(3));
  EXPECT_THAT(ReceivedIds(), ElementsAre("m1", "m2", "m3"));
  // The messages that were held back are not lost when the budget is free again.
  for (size_t i = 1; i < 5; ++i) {
    ASSERT_TRUE(WaitForMessages(i + 1));
    subscriber_->Ack({Handle(i)});
  }
}

TEST_F(SubscriberTest, AMessageLargerThanTheBudgetGoesThroughAlone) {
  Start({.max_outstanding_bytes = 10});
  Send(0, Response({"m1", "m2"}));
  ASSERT_TRUE(WaitForMessages(1));
  ASSERT_TRUE(WaitUntilAsked(kExtend, "ack-m2"));
  EXPECT_THAT(ReceivedIds(), ElementsAre("m1"));
  subscriber_->Ack({Handle(0)});
  ASSERT_TRUE(WaitForMessages(2));
}

TEST_F(SubscriberTest, UnderExactlyOnceMessagesThatWaitForTheirReceiptsCountInBytes) {
  service_.hold_answers = true;
  Start({.max_outstanding_bytes = 10});
  Send(0, Response({"m1", "m2"}, /*exactly_once=*/true));
  ASSERT_TRUE(WaitUntilAsked(kExtend, "ack-m2"));
  // One response may have been on its way when reading paused.
  Send(0, Response({"m3"}, /*exactly_once=*/true));
  Send(0, Response({"m4"}, /*exactly_once=*/true));
  service_.Locked([&] {
    service_.hold_answers = false;
    EXPECT_FALSE(service_.Asked(kExtend, "ack-m4"));
    service_.AnswerHeld();
  });
  for (size_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(WaitForMessages(i + 1));
    subscriber_->Ack({Handle(i)});
  }
}

TEST_F(SubscriberTest, AfterANackOnAnOrderedSubscriptionTheKeyWaitsForTheRedelivery) {
  Start();
  Send(0, Response({"m1:k", "m2:k"}, false, /*ordered=*/true));
  ASSERT_TRUE(WaitForMessages(2));
  subscriber_->Nack(Handle(0));
  subscriber_->Nack(Handle(1));
  ASSERT_TRUE(WaitUntilAsked(kNack, "ack-m2"));
  Send(0, Response({"m3:k", "other:l"}, false, true));  // m3 was sent before the nack
  ASSERT_TRUE(WaitUntilAsked(kNack, "ack-m3"));
  Send(0, Response({"m1':k", "m2':k", "m3':k"}, false, true));
  ASSERT_TRUE(WaitForMessages(6));
  EXPECT_THAT(ReceivedIds(), ElementsAre("m1", "m2", "other", "m1", "m2", "m3"));
}

// The queue of a key was emptied on one thread, and its gate was closed on another one.
TEST_F(SubscriberTest, NothingOfAKeyIsHandedOnBetweenItsReturnAndTheNack) {
  Start();
  Send(0, Response({"m1:k", "m2:k"}, false, /*ordered=*/true));
  ASSERT_TRUE(WaitForMessages(2));
  subscriber_->GiveBack([this] {
    // m3 is on its way to the client while the consumer forgets the key.
    Send(0, Response({"m3:k"}, false, true));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return std::vector<uint64_t>{Handle(0), Handle(1)};
  });
  ASSERT_TRUE(WaitUntilAsked(kNack, "ack-m3"));
  Send(0, Response({"m1':k", "m2':k", "m3':k"}, false, true));
  ASSERT_TRUE(WaitForMessages(5));
  EXPECT_THAT(ReceivedIds(), ElementsAre("m1", "m2", "m1", "m2", "m3"));
}

TEST_F(SubscriberTest, AMessageThatOvertakesTheRedeliveryOfOthersIsTurnedAway) {
  Start();
  Send(0, Response({"m1:k", "m2:k"}, false, /*ordered=*/true));
  ASSERT_TRUE(WaitForMessages(2));
  subscriber_->GiveBack([this] { return std::vector<uint64_t>{Handle(0), Handle(1)}; });
  ASSERT_TRUE(WaitUntilAsked(kNack, "ack-m2"));
  // The service has handled the nack of m1 only.
  Send(0, Response({"m1':k", "m3:k"}, false, true));
  ASSERT_TRUE(WaitUntilAsked(kNack, "ack-m3"));
  Send(0, Response({"m2':k", "m3':k"}, false, true));
  ASSERT_TRUE(WaitForMessages(5));
  EXPECT_THAT(ReceivedIds(), ElementsAre("m1", "m2", "m1", "m2", "m3"));
}

TEST_F(SubscriberTest, StoppingNacksWhatIsNotAckedAndWaitsForTheAcks) {
  Start({.max_outstanding_messages = 2});
  Send(0, Response({"m1", "m2", "m3"}));
  ASSERT_TRUE(WaitForMessages(2));
  subscriber_->StopPulling();
  EXPECT_TRUE(WaitUntilAsked(kNack, "ack-m3"));
  subscriber_->Ack({Handle(0)});
  subscriber_->Stop(std::chrono::seconds(60));
  EXPECT_THAT(ReceivedIds(), ElementsAre("m1", "m2"));
  EXPECT_TRUE(service_.Locked([&] { return service_.Asked(kAcknowledge, "ack-m1"); }));
  EXPECT_TRUE(service_.Locked([&] { return service_.Asked(kNack, "ack-m2"); }));
}

TEST_F(SubscriberTest, AServerThatIsNotThereIsTriedAgain) {
  SubscriberOptions options;
  options.endpoint = Endpoint{"127.0.0.1:1", true};
  options.subscription = kSubscription;
  SubscriberCallbacks callbacks;
  callbacks.on_messages = [](const std::vector<ReceivedMessage>&) {};
  callbacks.on_failure = [this](const std::string& error) {
    service_.Locked([&] { failures_.push_back(error); });
  };
  std::string error;
  subscriber_ = Subscriber::Create(options, callbacks, &error);
  ASSERT_NE(subscriber_, nullptr);
  EXPECT_TRUE(service_.WaitFor([&] { return failures_.size() >= 3; }));
  EXPECT_THAT(failures_[0], HasSubstr("UNAVAILABLE"));
}

}  // namespace
}  // namespace postbox::pubsub
