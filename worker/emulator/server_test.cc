// The emulator over a real connection, with the generated stubs.
#include "worker/emulator/server.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "google/pubsub/v1/pubsub.grpc.pb.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "postbox/emulator/v1/faults.grpc.pb.h"
#include "worker/emulator/answer_first.h"
#include "worker/emulator/broker/resource_spec.h"
#include "worker/emulator/broker/test_names.h"
#include "worker/emulator/publisher_service.h"

namespace postbox::emulator {
namespace {

namespace pb = google::pubsub::v1;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::chrono::seconds kPatience{60};

void SetDeadline(grpc::ClientContext* context) {
  context->set_deadline(std::chrono::system_clock::now() + kPatience);
}

// ErrorInfo.metadata of a failed acknowledgement.
std::map<std::string, std::string> AckErrors(const grpc::Status& status) {
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  for (const auto& any : details.details()) {
    if (any.type_url() == "type.googleapis.com/google.rpc.ErrorInfo") {
      EXPECT_TRUE(info.ParseFromString(any.value()));
    }
  }
  EXPECT_EQ(info.reason(), "EXACTLY_ONCE_ACKID_FAILURE");
  EXPECT_EQ(info.domain(), "pubsub.googleapis.com");
  return {info.metadata().begin(), info.metadata().end()};
}

class ServerTest : public ::testing::Test {
 protected:
  void Start(const std::string& subscription, BrokerOptions options = {}) {
    server_ = Server::Start("127.0.0.1", 0, options).value();
    ASSERT_TRUE(CreateResources("p", {}, {subscription}, server_->broker()).ok());
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, 4 * 1024 * 1024);
    const auto channel = grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(server_->port()),
                                                   grpc::InsecureChannelCredentials(), arguments);
    publisher_ = pb::Publisher::NewStub(channel);
    subscriber_ = pb::Subscriber::NewStub(channel);
    faults_ = v1::Faults::NewStub(channel);
  }

  grpc::Status Publish(const std::vector<std::string>& data, const std::string& key = "") {
    pb::PublishRequest request;
    request.set_topic(kTopic);
    for (const std::string& text : data) {
      request.add_messages()->set_data(text);
      request.mutable_messages()->rbegin()->set_ordering_key(key);
    }
    pb::PublishResponse response;
    grpc::ClientContext context;
    SetDeadline(&context);
    return publisher_->Publish(&context, request, &response);
  }
  std::vector<pb::ReceivedMessage> Pull() {
    pb::PullRequest request;
    request.set_subscription(kSub);
    request.set_max_messages(100);
    pb::PullResponse response;
    grpc::ClientContext context;
    SetDeadline(&context);
    EXPECT_TRUE(subscriber_->Pull(&context, request, &response).ok());
    return {response.received_messages().begin(), response.received_messages().end()};
  }
  grpc::Status Ack(const std::vector<std::string>& ids) {
    pb::AcknowledgeRequest request;
    request.set_subscription(kSub);
    for (const std::string& id : ids) request.add_ack_ids(id);
    google::protobuf::Empty response;
    grpc::ClientContext context;
    SetDeadline(&context);
    return subscriber_->Acknowledge(&context, request, &response);
  }
  void AddFault(const std::string& spec) {
    v1::AddFaultRequest request;
    *request.add_faults() = ParseFault(spec).value();
    v1::AddFaultResponse response;
    grpc::ClientContext context;
    SetDeadline(&context);
    ASSERT_TRUE(faults_->AddFault(&context, request, &response).ok());
  }
  void ClearFaults() {
    v1::ClearFaultsResponse response;
    grpc::ClientContext context;
    SetDeadline(&context);
    ASSERT_TRUE(faults_->ClearFaults(&context, {}, &response).ok());
  }
  v1::StatsResponse Stats() {
    v1::StatsResponse response;
    grpc::ClientContext context;
    SetDeadline(&context);
    EXPECT_TRUE(faults_->Stats(&context, {}, &response).ok());
    return response;
  }

  std::unique_ptr<Server> server_;
  std::unique_ptr<pb::Publisher::Stub> publisher_;
  std::unique_ptr<pb::Subscriber::Stub> subscriber_;
  std::unique_ptr<v1::Faults::Stub> faults_;
};

// The client's side of a StreamingPull.
class Stream {
 public:
  explicit Stream(pb::Subscriber::Stub* stub, int64_t most = 0, int version = 1) {
    SetDeadline(&context_);
    stream_ = stub->StreamingPull(&context_);
    pb::StreamingPullRequest request;
    request.set_subscription(kSub);
    request.set_stream_ack_deadline_seconds(10);
    request.set_client_id("test");
    request.set_max_outstanding_messages(most);
    request.set_protocol_version(version);
    stream_->Write(request);
  }
  ~Stream() { context_.TryCancel(); }
  void Write(const pb::StreamingPullRequest& request) { stream_->Write(request); }
  std::optional<pb::StreamingPullResponse> Read() {
    pb::StreamingPullResponse response;
    if (!stream_->Read(&response)) return std::nullopt;
    return response;
  }
  // Reads until `count` messages came or the stream ended.
  std::vector<pb::ReceivedMessage> ReadMessages(size_t count) {
    std::vector<pb::ReceivedMessage> messages;
    while (messages.size() < count) {
      const auto response = Read();
      if (!response) break;
      messages.insert(messages.end(), response->received_messages().begin(),
                      response->received_messages().end());
    }
    return messages;
  }
  void WritesDone() { stream_->WritesDone(); }
  grpc::Status Finish() { return stream_->Finish(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<pb::StreamingPullRequest, pb::StreamingPullResponse>>
      stream_;
};

std::vector<std::string> Data(const std::vector<pb::ReceivedMessage>& messages) {
  std::vector<std::string> data;
  for (const auto& message : messages) data.push_back(message.message().data());
  return data;
}

TEST_F(ServerTest, PublishPullAndAckWorkOverTheWire) {
  Start("sub=topic");
  ASSERT_TRUE(Publish({"a", "b"}).ok());
  const auto got = Pull();
  ASSERT_THAT(Data(got), ElementsAre("a", "b"));
  EXPECT_TRUE(Ack({got[0].ack_id(), got[1].ack_id()}).ok());
  const auto stats = Stats();
  ASSERT_THAT(stats.subscriptions(), SizeIs(1));
  EXPECT_EQ(stats.subscriptions(0).acked(), 2);
  EXPECT_EQ(stats.messages_published(), 2);
}

// gRPC sends the answer when the method of the service has returned.
TEST(AnswerFirst, AStreamHasNoMessageWhileItsPublishIsNotAnswered) {
  class Counter final : public Listener {
   public:
    void Wake() override { ++wakes; }
    int wakes = 0;
  };
  Broker broker([] { return absl::UnixEpoch(); }, BrokerOptions{});
  Faults faults;
  CallGate gate(&faults);
  AnswerFirst answer_first(absl::ZeroDuration());
  PublisherService service(&broker, &gate, &answer_first);
  ASSERT_TRUE(CreateResources("p", {}, {"sub=topic"}, &broker).ok());
  pb::StreamingPullRequest open;
  open.set_subscription(kSub);
  open.set_stream_ack_deadline_seconds(60);
  const auto listener = std::make_shared<Counter>();
  const auto stream = broker.pulling()->OpenStream(open, listener).value();

  grpc::ServerContext context;
  pb::PublishRequest request;
  request.set_topic(kTopic);
  request.add_messages()->set_data("a");
  pb::PublishResponse response;
  ASSERT_TRUE(service.Publish(&context, &request, &response).ok());
  EXPECT_EQ(response.message_ids_size(), 1);
  EXPECT_EQ(listener->wakes, 0);
  EXPECT_THAT(stream.Take()->deliveries, IsEmpty());

  // What is not answered, or late, is delivered at once.
  for (const char* fault : {"rpc=Publish,code=UNAVAILABLE,after-effect,count=1",
                            "rpc=Publish,action=delay,latency-ms=1,after-effect,count=1"}) {
    faults.Add(ParseFault(fault).value());
    service.Publish(&context, &request, &response);
  }
  EXPECT_EQ(listener->wakes, 0) << "the first one is due before the others";
  broker.DeliverAccepted();
  EXPECT_THAT(stream.Take()->deliveries, SizeIs(3));
  stream.Close();
}

TEST_F(ServerTest, AStreamGetsWhatIsPublishedWhenTheAnswerWasSent) {
  Start("sub=topic");
  Stream stream(subscriber_.get());
  for (int round = 0; round < 100; ++round) {
    ASSERT_TRUE(Publish({"a"}).ok());
    ASSERT_THAT(stream.ReadMessages(1), SizeIs(1));
  }
}

TEST_F(ServerTest, WhatWasPublishedIsThereForWhoeverAsksAfterTheAnswer) {
  Start("sub=topic");
  pb::PullRequest request;
  request.set_subscription(kSub);
  request.set_max_messages(1);
  request.set_return_immediately(true);
  for (int round = 0; round < 100; ++round) {
    ASSERT_TRUE(Publish({"a"}).ok());
    pb::PullResponse response;
    grpc::ClientContext context;
    SetDeadline(&context);
    ASSERT_TRUE(subscriber_->Pull(&context, request, &response).ok());
    ASSERT_EQ(response.received_messages_size(), 1) << "in round " << round;
  }
}

TEST_F(ServerTest, ThreeThousandAckIdsFitIntoOneRequest) {
  Start("sub=topic");
  ASSERT_TRUE(Publish({"a"}).ok());
  const std::string id = Pull().at(0).ack_id();
  EXPECT_TRUE(Ack(std::vector<std::string>(3000, id)).ok());
  std::string wrong = id;
  wrong[20] = wrong[20] == '0' ? '1' : '0';
  EXPECT_EQ(Ack({wrong}).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServerTest, AWaitingPullGetsWhatIsPublishedMeanwhile) {
  Start("sub=topic");
  std::thread publisher([this] {
    // Published when the Pull probably waits. The test passes even if it does not wait yet.
    while (Stats().rpcs().empty()) std::this_thread::yield();
    EXPECT_TRUE(Publish({"a"}).ok());
  });
  EXPECT_THAT(Data(Pull()), ElementsAre("a"));
  publisher.join();
}

TEST_F(ServerTest, AStreamSaysItsPropertiesDeliversAndTakesAcks) {
  Start("sub=topic,ordered,exactly-once");
  Stream stream(subscriber_.get());
  const auto hello = stream.Read();
  ASSERT_TRUE(hello);
  EXPECT_TRUE(hello->subscription_properties().exactly_once_delivery_enabled());
  EXPECT_TRUE(hello->subscription_properties().message_ordering_enabled());
  ASSERT_TRUE(Publish({"a", "b"}, "k").ok());
  const auto got = stream.ReadMessages(2);
  ASSERT_THAT(Data(got), ElementsAre("a", "b"));
  pb::StreamingPullRequest acks;
  acks.add_ack_ids(got[0].ack_id());
  acks.add_modify_deadline_ack_ids(got[1].ack_id());
  acks.add_modify_deadline_seconds(30);
  stream.Write(acks);
  const auto confirmed = stream.Read();
  ASSERT_TRUE(confirmed);
  EXPECT_THAT(confirmed->acknowledge_confirmation().ack_ids(), ElementsAre(got[0].ack_id()));
  EXPECT_THAT(confirmed->modify_ack_deadline_confirmation().ack_ids(),
              ElementsAre(got[1].ack_id()));
  stream.WritesDone();
  EXPECT_FALSE(stream.Read());
  EXPECT_TRUE(stream.Finish().ok());
}

TEST_F(ServerTest, AStreamGetsNoMoreThanItsFlowControlAllows) {
  Start("sub=topic");
  Stream stream(subscriber_.get(), /*most=*/2);
  ASSERT_TRUE(stream.Read());
  ASSERT_TRUE(Publish({"a", "b", "c"}).ok());
  const auto got = stream.ReadMessages(2);
  ASSERT_THAT(got, SizeIs(2));
  EXPECT_EQ(Stats().subscriptions(0).outstanding(), 2);
  EXPECT_EQ(Stats().subscriptions(0).backlog(), 1);
  EXPECT_TRUE(Ack({got[0].ack_id()}).ok());
  EXPECT_THAT(stream.ReadMessages(1), SizeIs(1));
}

TEST_F(ServerTest, PingsAreAnsweredUnlessAFaultSilencesThem) {
  Start("sub=topic");
  Stream stream(subscriber_.get());
  ASSERT_TRUE(stream.Read());
  stream.Write({});
  const auto pong = stream.Read();
  ASSERT_TRUE(pong);
  EXPECT_THAT(pong->received_messages(), IsEmpty());
  AddFault("action=ping-silence,count=1");
  stream.Write({});
  ASSERT_TRUE(Publish({"a"}).ok());
  const auto next = stream.Read();
  ASSERT_TRUE(next);
  EXPECT_THAT(next->received_messages(), SizeIs(1)) << "the message, not an answer";
}

TEST_F(ServerTest, AStreamEndsWithTheRightCode) {
  Start("sub=topic");
  {
    Stream stream(subscriber_.get());
    ASSERT_TRUE(stream.Read());
    pb::StreamingPullRequest again;
    again.set_subscription(kSub);
    stream.Write(again);
    EXPECT_FALSE(stream.Read());
    EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  Stream stream(subscriber_.get());
  ASSERT_TRUE(stream.Read());
  ASSERT_TRUE(server_->broker()->subscriptions()->Delete(kSub).ok());
  EXPECT_FALSE(stream.Read());
  EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::NOT_FOUND);
  Stream late(subscriber_.get());
  EXPECT_FALSE(late.Read());
  EXPECT_EQ(late.Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ServerTest, StaleAcksAreRefusedWithErrorInfoInTheTrailers) {
  Start("sub=topic,exactly-once");
  ASSERT_TRUE(Publish({"a"}).ok());
  const auto got = Pull();
  ASSERT_THAT(got, SizeIs(1));
  ASSERT_TRUE(Ack({got[0].ack_id()}).ok());
  const grpc::Status status = Ack({got[0].ack_id()});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(AckErrors(status),
              ElementsAre(testing::Pair(got[0].ack_id(), "PERMANENT_FAILURE_INVALID_ACK_ID")));
}

TEST_F(ServerTest, AThousandStaleAcksFitIntoTheTrailers) {
  Start("sub=topic,exactly-once");
  ASSERT_TRUE(Publish(std::vector<std::string>(1000, "x")).ok());
  std::vector<std::string> ids;
  while (ids.size() < 1000) {
    for (const auto& message : Pull()) ids.push_back(message.ack_id());
  }
  ASSERT_TRUE(Ack(ids).ok());
  EXPECT_THAT(AckErrors(Ack(ids)), SizeIs(1000));
}

TEST_F(ServerTest, LimitsAreRefusedAndNotDropped) {
  Start("sub=topic");
  const grpc::Status too_large = Publish({std::string(12'000'000, 'x')});
  EXPECT_EQ(too_large.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(too_large.error_message(), HasSubstr("10000000"));
  EXPECT_EQ(Publish({""}).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServerTest, AFaultAnswersInsteadOfTheServiceOrAfterItTookEffect) {
  Start("sub=topic,ordered");
  AddFault("rpc=Publish,code=UNAVAILABLE,count=1,ordering-key=k");
  EXPECT_TRUE(Publish({"a"}, "j").ok());
  EXPECT_EQ(Publish({"b"}, "k").error_code(), grpc::StatusCode::UNAVAILABLE);
  AddFault("rpc=Publish,code=INTERNAL,count=1,after-effect,message=lost");
  const grpc::Status lost = Publish({"c"}, "k");
  EXPECT_EQ(lost.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(lost.error_message(), "lost");
  EXPECT_THAT(Data(Pull()), ::testing::UnorderedElementsAre("a", "c"));
  EXPECT_EQ(Stats().faults_fired(), 2);
}

TEST_F(ServerTest, AnInjectedLatencyIsWaitedFor) {
  Start("sub=topic");
  AddFault("rpc=Publish,latency-ms=300,count=1");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(Publish({"a"}).ok());
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(300));
  AddFault("rpc=StreamingPull,latency-ms=300,count=1");
  Stream stream(subscriber_.get());
  EXPECT_THAT(stream.ReadMessages(1), SizeIs(1));
}

TEST_F(ServerTest, ACallThatIsDelayedGoesOnWhenTheFaultsAreCleared) {
  Start("sub=topic");
  for (const char* fault : {"rpc=Publish,latency-ms=600000,count=1",
                            "rpc=Publish,action=delay,latency-ms=600000,after-effect,count=1"}) {
    const int64_t fired = Stats().faults_fired();
    AddFault(fault);
    auto call = std::async(std::launch::async, [this] { return Publish({"a"}); });
    while (Stats().faults_fired() == fired) std::this_thread::yield();
    ClearFaults();
    EXPECT_TRUE(call.get().ok());
  }
}

TEST_F(ServerTest, AStreamCanBeRefused) {
  Start("sub=topic");
  AddFault("rpc=StreamingPull,code=PERMISSION_DENIED,count=1");
  Stream refused(subscriber_.get());
  EXPECT_FALSE(refused.Read());
  EXPECT_EQ(refused.Finish().error_code(), grpc::StatusCode::PERMISSION_DENIED);
  Stream accepted(subscriber_.get());
  EXPECT_TRUE(accepted.Read());
}

TEST_F(ServerTest, ABrokenStreamGivesItsMessagesBackWhenAskedTo) {
  BrokerOptions options;
  options.release_on_disconnect = true;
  Start("sub=topic", options);
  ASSERT_TRUE(Publish({"a"}).ok());
  {
    Stream stream(subscriber_.get());
    ASSERT_THAT(stream.ReadMessages(1), SizeIs(1));
  }
  EXPECT_THAT(Data(Pull()), ElementsAre("a"));
}

TEST_F(ServerTest, AnAckFaultFailsSomeIdsAndLetsTheOthersPass) {
  Start("sub=topic,exactly-once");
  ASSERT_TRUE(Publish({"a", "b"}).ok());
  const auto got = Pull();
  ASSERT_THAT(got, SizeIs(2));
  AddFault("rpc=Acknowledge,action=ack-error,partial,count=1,error-info=TRANSIENT_FAILURE_X");
  const grpc::Status status = Ack({got[0].ack_id(), got[1].ack_id()});
  EXPECT_THAT(AckErrors(status),
              ElementsAre(testing::Pair(got[1].ack_id(), "TRANSIENT_FAILURE_X")));
  EXPECT_EQ(Stats().subscriptions(0).outstanding(), 1);
  EXPECT_TRUE(Ack({got[1].ack_id()}).ok());
}

TEST_F(ServerTest, AnAbortedStreamDeliversWhatItCouldNotSendToTheNextOne) {
  Start("sub=topic,ordered");
  {
    Stream stream(subscriber_.get());
    ASSERT_TRUE(stream.Read());
    AddFault("rpc=StreamingPull,action=abort-stream,ordering-key=k,count=1");
    ASSERT_TRUE(Publish({"a"}, "k").ok());
    EXPECT_FALSE(stream.Read());
    EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  }
  Stream next(subscriber_.get());
  EXPECT_THAT(Data(next.ReadMessages(1)), ElementsAre("a"));
  // Without a message to wait for, open streams are aborted at once.
  AddFault("action=abort-stream,code=INTERNAL");
  EXPECT_FALSE(next.Read());
  EXPECT_EQ(next.Finish().error_code(), grpc::StatusCode::INTERNAL);
}

TEST_F(ServerTest, AStalledStreamIsSilentUntilTheFaultsAreCleared) {
  Start("sub=topic");
  Stream stalled(subscriber_.get());
  ASSERT_TRUE(stalled.Read());
  AddFault("action=stall,count=1");
  stalled.Write({});
  Stream healthy(subscriber_.get());
  ASSERT_TRUE(healthy.Read());
  ASSERT_TRUE(Publish({"a"}).ok());
  EXPECT_THAT(Data(healthy.ReadMessages(1)), ElementsAre("a"));
  ClearFaults();
  stalled.Write({});
  const auto answer = stalled.Read();
  ASSERT_TRUE(answer);
  EXPECT_THAT(answer->received_messages(), IsEmpty());
}

TEST_F(ServerTest, TrailersCanBeMadeBig) {
  Start("sub=topic");
  AddFault("rpc=Acknowledge,action=big-trailer,trailer-bytes=1000000,code=UNAVAILABLE,count=1");
  EXPECT_EQ(Ack({"x"}).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(ServerTest, EveryMessageIsDeliveredTwiceWhenAskedTo) {
  BrokerOptions options;
  options.deliver_twice = true;
  Start("sub=topic,ordered", options);
  Stream stream(subscriber_.get());
  ASSERT_TRUE(Publish({"1", "2"}, "k").ok());
  for (int round = 0; round < 2; ++round) {
    const auto got = stream.ReadMessages(2);
    ASSERT_THAT(Data(got), ElementsAre("1", "2"));
    ASSERT_TRUE(Ack({got[0].ack_id(), got[1].ack_id()}).ok());
  }
  EXPECT_EQ(Stats().subscriptions(0).backlog(), 0);
}

TEST_F(ServerTest, AStopEndsOpenStreamsAndWaitingPulls) {
  Start("sub=topic");
  Stream stream(subscriber_.get());
  ASSERT_TRUE(stream.Read());
  std::thread puller([this] { EXPECT_THAT(Pull(), IsEmpty()); });
  const auto pulls = [this] {
    const v1::StatsResponse stats = Stats();
    for (const auto& rpc : stats.rpcs()) {
      if (rpc.name() == "Pull") return rpc.calls();
    }
    return int64_t{0};
  };
  while (pulls() == 0) std::this_thread::yield();
  server_.reset();
  puller.join();
  EXPECT_FALSE(stream.Read());
  EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(ServerTest, APortInUseIsAnErrorAndNotShared) {
  Start("sub=topic");
  EXPECT_FALSE(Server::Start("127.0.0.1", server_->port(), {}).ok());
}

}  // namespace
}  // namespace postbox::emulator
