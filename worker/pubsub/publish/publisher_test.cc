#include "worker/pubsub/publish/publisher.h"

#include <dirent.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "google/pubsub/v1/pubsub.grpc.pb.h"
#include "proto/rules/error_class.h"
#include "worker/pubsub/auth/credentials.h"
#include "worker/pubsub/event_loop.h"
#include "worker/pubsub/publish/publish_transport.h"

namespace postbox::pubsub {
namespace {

using google::pubsub::v1::PublishRequest;
using google::pubsub::v1::PublishResponse;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kTopic[] = "projects/p/topics/catalog.video.events";

// A Pub/Sub server that answers as the test decides and keeps the requests.
class Service final : public google::pubsub::v1::Publisher::Service {
 public:
  // Called for every request; the default takes it. May be replaced before the first request only.
  std::function<grpc::Status(grpc::ServerContext*, const PublishRequest&, PublishResponse*)>
      behaviour = [this](grpc::ServerContext*, const PublishRequest& request,
                         PublishResponse* response) { return Accept(request, response); };

  grpc::Status Publish(grpc::ServerContext* context, const PublishRequest* request,
                       PublishResponse* response) override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ++requests_;
      for (const auto& message : request->messages()) {
        EXPECT_EQ(message.ordering_key(), request->messages(0).ordering_key());
      }
      for (const auto& [name, value] : context->client_metadata()) {
        headers_[std::string(name.data(), name.size())] = std::string(value.data(), value.size());
      }
      peers_.insert(context->peer());
    }
    return behaviour(context, *request, response);
  }

  grpc::Status Accept(const PublishRequest& request, PublishResponse* response) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& message : request.messages()) {
      response->add_message_ids("m" + std::to_string(++last_id_));
      accepted_.push_back(message);
    }
    return grpc::Status::OK;
  }

  std::vector<google::pubsub::v1::PubsubMessage> accepted() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return accepted_;
  }
  std::map<std::string, std::string> headers() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return headers_;
  }
  std::size_t peers() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return peers_.size();
  }
  int requests() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return requests_;
  }

 private:
  std::mutex mutex_;
  int requests_ = 0;
  int last_id_ = 0;
  std::vector<google::pubsub::v1::PubsubMessage> accepted_;
  std::map<std::string, std::string> headers_;
  std::set<std::string> peers_;
};

struct Tagged : OutgoingMessage {
  std::uint64_t tag = 0;
};

class PublisherTest : public testing::Test {
 protected:
  PublisherTest() : notify_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) { StartServer(0); }
  ~PublisherTest() override {
    publisher_.reset();
    StopServer();
    close(notify_fd_);
  }

  void StartServer(int port, bool takes_gzip = true,
                   const std::map<std::string, int>& arguments = {}) {
    grpc::ServerBuilder builder;
    for (const auto& [name, value] : arguments) builder.AddChannelArgument(name, value);
    builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, takes_gzip);
    builder.AddListeningPort("127.0.0.1:" + std::to_string(port), grpc::InsecureServerCredentials(),
                             &port_);
    builder.SetMaxReceiveMessageSize(-1);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }
  void StopServer() {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
    server_.reset();
  }

  PublisherOptions Options() {
    PublisherOptions options;
    options.endpoint = {"127.0.0.1:" + std::to_string(port_), true};
    options.notify_fd = notify_fd_;
    return options;
  }
  void Start(const PublisherOptions& options) {
    std::string error;
    publisher_ = Publisher::Create(options, &error);
    ASSERT_NE(publisher_, nullptr) << error;
  }
  void Start() { Start(Options()); }

  Tagged* Make(std::uint64_t tag, const std::string& key, const std::string& data = "data") {
    messages_.push_back(
        {MakeOutgoingMessage(kTopic, key, data, {{"event_id", std::to_string(tag)}}), tag});
    return &messages_.back();
  }
  void Publish(std::uint64_t tag, const std::string& key, const std::string& data = "data") {
    ASSERT_TRUE(publisher_->Publish(Make(tag, key, data)));
  }

  // Waits on the eventfd until this many results have come.
  std::vector<Tagged> Results(std::size_t count) {
    std::vector<Tagged> results;
    while (results.size() < count) {
      pollfd wait{notify_fd_, POLLIN, 0};
      if (poll(&wait, 1, 100'000) != 1) {
        ADD_FAILURE() << "only " << results.size() << " of " << count << " results came";
        break;
      }
      eventfd_t value = 0;
      eventfd_read(notify_fd_, &value);
      for (const OutgoingMessage* message : publisher_->TakeResults()) {
        results.push_back(*static_cast<const Tagged*>(message));
      }
    }
    return results;
  }

  std::deque<Tagged> messages_;  // of the whole test
  int notify_fd_;
  int port_ = 0;
  Service service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Publisher> publisher_;
};

TEST_F(PublisherTest, LargeRequestsAreCompressedIfThatIsAskedFor) {
  PublisherOptions options = Options();
  options.compression = true;
  Start(options);
  const std::string large(100'000, 'x');
  Publish(1, "key", large);
  EXPECT_EQ(Results(1).at(0).status, PublishStatus::kPublished);
  EXPECT_EQ(service_.accepted().at(0).data(), large);
  publisher_.reset();
  // A server that takes no gzip refuses what is compressed, and nothing else.
  StopServer();
  StartServer(0, /*takes_gzip=*/false);
  options.endpoint = Options().endpoint;
  Start(options);
  Publish(2, "small");
  EXPECT_EQ(Results(1).at(0).status, PublishStatus::kPublished);
  Publish(3, "large", large);
  const std::string error = Results(1).at(0).error;
  EXPECT_NE(error.find("UNIMPLEMENTED"), std::string::npos) << error;
  Start(Options());
  Publish(4, "large", large);
  EXPECT_EQ(Results(1).at(0).status, PublishStatus::kPublished);
}

TEST_F(PublisherTest, MessagesArriveAsTheyAreInTheOrderOfTheirKeys) {
  PublisherOptions options = Options();
  options.quota_project = "who-pays";
  std::atomic<bool> open = false;
  service_.behaviour = [&](grpc::ServerContext*, const PublishRequest& request,
                           PublishResponse* response) {
    while (!open) std::this_thread::sleep_for(milliseconds(1));
    return service_.Accept(request, response);
  };
  Start(options);
  constexpr std::uint64_t kMessages = 3000;
  for (std::uint64_t tag = 1; tag <= kMessages; ++tag)
    Publish(tag, "key-" + std::to_string(tag % 50));
  // The sending thread takes messages in their order. When the last one is on its way, all others
  // have piled up behind the first of their key.
  Publish(kMessages + 1, "the last key");
  while (service_.requests() < 51) std::this_thread::sleep_for(milliseconds(1));
  open = true;
  const auto results = Results(kMessages + 1);
  ASSERT_EQ(results.size(), kMessages + 1);
  std::set<std::uint64_t> tags;
  for (const Tagged& result : results) {
    EXPECT_EQ(result.status, PublishStatus::kPublished) << result.error;
    tags.insert(result.tag);
  }
  EXPECT_EQ(tags.size(), kMessages + 1);
  EXPECT_EQ(publisher_->outstanding(), 0u);

  std::map<std::string, std::uint64_t> last;
  for (const auto& message : service_.accepted()) {
    const std::uint64_t tag = std::stoull(message.attributes().at("event_id"));
    EXPECT_GT(tag, last[message.ordering_key()]) << message.ordering_key();
    last[message.ordering_key()] = tag;
    EXPECT_EQ(message.data(), "data");
  }
  EXPECT_EQ(last.size(), 51u);
  EXPECT_LE(service_.requests(), 101)
      << "what piles up behind the first request of a key goes together";
  EXPECT_EQ(service_.peers(), 1u) << "that is enough for 51 requests";
  const auto headers = service_.headers();
  EXPECT_EQ(headers.at("x-goog-request-params"),
            "topic=projects%2Fp%2Ftopics%2Fcatalog.video.events");
  EXPECT_EQ(headers.at("x-goog-user-project"), "who-pays");
  EXPECT_NE(headers.at("x-goog-api-client").find("grpc/"), std::string::npos);
}

TEST_F(PublisherTest, MoreConnectionsAreOpenedWhenOneIsNotEnoughAndNotMoreThanTheOptionSays) {
  PublisherOptions options = Options();
  options.channels = 3;
  std::atomic<bool> open = false;
  service_.behaviour = [&](grpc::ServerContext*, const PublishRequest& request,
                           PublishResponse* response) {
    while (!open) std::this_thread::sleep_for(milliseconds(1));
    return service_.Accept(request, response);
  };
  Start(options);
  for (std::uint64_t tag = 1; tag <= 5; ++tag) {
    Publish(tag, "key-" + std::to_string(tag), std::string(3'000'000, 'x'));
  }
  while (service_.requests() < 5) std::this_thread::sleep_for(milliseconds(1));
  open = true;
  EXPECT_EQ(Results(5).size(), 5u);
  EXPECT_EQ(service_.peers(), 3u);
}

TEST_F(PublisherTest, RequestsThatWaitForAStreamOutliveTheConnectionsThatAServerCloses) {
  StopServer();
  StartServer(0, true,
              {{GRPC_ARG_MAX_CONCURRENT_STREAMS, 100}, {GRPC_ARG_MAX_CONNECTION_AGE_MS, 200}});
  Start();
  constexpr std::size_t kMessages = 10'000;
  for (std::uint64_t tag = 1; tag <= kMessages; ++tag) Publish(tag, "key-" + std::to_string(tag));
  std::size_t published = 0;
  while (published < kMessages) {
    const auto results = Results(1);
    ASSERT_FALSE(results.empty());
    for (const Tagged& result : results) published += result.status == PublishStatus::kPublished;
    // What a server has not read when it closes a connection, the kernel refuses, and what is
    // written to the connection afterwards: that was sent.
    for (const FailingTopic& failing : publisher_->FailingTopics()) {
      EXPECT_TRUE(failing.error.find("Connection reset by peer") != std::string::npos ||
                  failing.error.find("Broken pipe") != std::string::npos)
          << "what was not sent is nobody's failure: " << failing.error;
    }
  }
  // A server of gRPC may take a request of which its GOAWAY says that it has not.
  EXPECT_GE(service_.accepted().size(), kMessages);
  EXPECT_FALSE(publisher_->AnyFails());
  EXPECT_GE(service_.peers(), 4u) << "connections were closed";
}

TEST_F(PublisherTest, ALargeMessageGoesThroughAloneAndTheBudgetHoldsTheNextOneBack) {
  PublisherOptions options = Options();
  options.max_outstanding_bytes = 1000;
  options.max_outstanding_messages = 3;
  Start(options);
  Publish(1, "a", std::string(9'000'000, 'x'));
  Tagged* small = Make(2, "b");
  EXPECT_FALSE(publisher_->Publish(small));
  EXPECT_EQ(Results(1)[0].status, PublishStatus::kPublished);
  for (std::uint64_t tag = 2; tag <= 4; ++tag) Publish(tag, "a");
  EXPECT_FALSE(publisher_->Publish(Make(5, "b"))) << "three are outstanding";
  EXPECT_EQ(Results(3).size(), 3u);
  EXPECT_TRUE(publisher_->Publish(small));
  EXPECT_EQ(Results(1).size(), 1u);
  EXPECT_EQ(service_.accepted()[0].data().size(), 9'000'000u);
}

TEST_F(PublisherTest, FailuresThatPassAreRetriedByThePublisher) {
  std::atomic<int> failures = 0;
  service_.behaviour = [&](grpc::ServerContext*, const PublishRequest& request,
                           PublishResponse* response) {
    constexpr grpc::StatusCode kCodes[] = {grpc::UNAVAILABLE, grpc::RESOURCE_EXHAUSTED,
                                           grpc::INTERNAL, grpc::ABORTED};
    const int number = failures++;
    return number < 4 ? grpc::Status(kCodes[number], "later") : service_.Accept(request, response);
  };
  Start();
  Publish(1, "a");
  const auto results = Results(1);
  EXPECT_EQ(results[0].status, PublishStatus::kPublished) << results[0].error;
  EXPECT_GE(service_.requests(), 5);
}

TEST_F(PublisherTest, ALostResponseMakesADuplicateAndNoLoss) {
  std::atomic<int> calls = 0;
  service_.behaviour = [&](grpc::ServerContext*, const PublishRequest& request,
                           PublishResponse* response) {
    const grpc::Status status = service_.Accept(request, response);
    return calls++ == 0 ? grpc::Status(grpc::UNAVAILABLE, "the connection broke after the publish")
                        : status;
  };
  Start();
  Publish(1, "a");
  Publish(2, "a");
  const auto results = Results(2);
  for (const Tagged& result : results) EXPECT_EQ(result.status, PublishStatus::kPublished);
  const auto accepted = service_.accepted();
  ASSERT_GE(accepted.size(), 3u);
  EXPECT_EQ(accepted[0].attributes().at("event_id"), "1");
  EXPECT_EQ(accepted.back().attributes().at("event_id"), "2");
}

TEST_F(PublisherTest, ABrokerThatComesBackIsFoundWithinThePublishTimeout) {
  StopServer();
  // A listener that accepts a connection and closes it. When it has done so, an attempt has failed.
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port_));
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(listener, 16), 0);
  Start();
  Publish(1, "a");
  Publish(2, "");
  close(accept(listener, nullptr, nullptr));
  close(listener);
  StartServer(port_);
  for (const Tagged& result : Results(2))
    EXPECT_EQ(result.status, PublishStatus::kPublished) << result.error;
}

TEST_F(PublisherTest, AStalledBrokerCostsThePublishTimeoutAndNoMore) {
  service_.behaviour = [&](grpc::ServerContext* context, const PublishRequest& request,
                           PublishResponse* response) {
    if (request.messages(0).ordering_key() != "stalled") return service_.Accept(request, response);
    while (!context->IsCancelled()) std::this_thread::sleep_for(milliseconds(5));
    return grpc::Status(grpc::CANCELLED, "no longer waited for");
  };
  PublisherOptions options = Options();
  options.publish_timeout = milliseconds(300);
  Start(options);
  Publish(1, "stalled");
  auto results = Results(1);
  EXPECT_EQ(results[0].status, PublishStatus::kUnreachable) << "nothing of its topic was answered";
  EXPECT_EQ(results[0].error.substr(0, 17), "DEADLINE_EXCEEDED") << results[0].error;
  Publish(2, "other");
  // A loaded machine sometimes needs longer than 300 ms. Then this message is unknown, too, and is
  // sent again.
  for (int attempt = 0; attempt < 100; ++attempt) {
    results = Results(1);
    if (results[0].status == PublishStatus::kPublished) break;
    Publish(2, "other");
  }
  EXPECT_EQ(results[0].status, PublishStatus::kPublished) << results[0].error;
}

TEST_F(PublisherTest, ABrokenEventIsFoundAndItsKeyStopsWhileOthersGoOn) {
  service_.behaviour = [&](grpc::ServerContext*, const PublishRequest& request,
                           PublishResponse* response) {
    for (const auto& message : request.messages()) {
      if (message.data() == "broken")
        return grpc::Status(grpc::INVALID_ARGUMENT, "cannot take this");
    }
    return service_.Accept(request, response);
  };
  Start();
  for (std::uint64_t tag = 1; tag <= 20; ++tag) Publish(tag, "a", tag == 13 ? "broken" : "data");
  for (std::uint64_t tag = 21; tag <= 40; ++tag) Publish(tag, "", tag == 33 ? "broken" : "data");
  for (const Tagged& result : Results(40)) {
    PublishStatus expected = PublishStatus::kPublished;
    if (result.tag == 13 || result.tag == 33) expected = PublishStatus::kRejected;
    if (result.tag > 13 && result.tag <= 20) expected = PublishStatus::kBehind;
    EXPECT_EQ(result.status, expected) << result.tag << " " << result.error;
  }
  // Now the caller knows of the failure, and the key can be used again.
  Publish(14, "a");
  EXPECT_EQ(Results(1)[0].status, PublishStatus::kPublished);
}

TEST_F(PublisherTest, AMissingTopicIsNotRetried) {
  service_.behaviour = [](grpc::ServerContext*, const PublishRequest&, PublishResponse*) {
    return grpc::Status(grpc::NOT_FOUND, "Resource not found (resource=catalog.video.events).");
  };
  Start();
  Publish(1, "a");
  const auto results = Results(1);
  EXPECT_EQ(results[0].status, PublishStatus::kTopicBroken);
  EXPECT_EQ(results[0].error, "NOT_FOUND: Resource not found (resource=catalog.video.events).");
  EXPECT_EQ(service_.requests(), 1);
}

TEST_F(PublisherTest, AWrongNumberOfMessageIdsIsUnknown) {
  service_.behaviour = [](grpc::ServerContext*, const PublishRequest&, PublishResponse* response) {
    response->add_message_ids("1");
    response->add_message_ids("2");
    return grpc::Status::OK;
  };
  Start();
  Publish(1, "a");
  EXPECT_EQ(Results(1)[0].status, PublishStatus::kUnknown);
}

TEST_F(PublisherTest, CancelEndsWhatIsInFlightAndThePublisherStaysUsable) {
  std::atomic<bool> stall = true;
  service_.behaviour = [&](grpc::ServerContext* context, const PublishRequest& request,
                           PublishResponse* response) {
    while (stall && !context->IsCancelled()) std::this_thread::sleep_for(milliseconds(5));
    return context->IsCancelled() ? grpc::Status::CANCELLED : service_.Accept(request, response);
  };
  Start();
  Publish(1, "a");
  while (service_.requests() == 0) std::this_thread::sleep_for(milliseconds(5));
  Publish(2, "a");
  publisher_->Cancel();
  const auto results = Results(2);
  EXPECT_EQ(results[0].tag, 1u);
  for (const Tagged& result : results)
    EXPECT_EQ(result.status, PublishStatus::kUnknown) << result.error;
  stall = false;
  Publish(3, "a");
  EXPECT_EQ(Results(1)[0].status, PublishStatus::kPublished);
}

TEST_F(PublisherTest, APublisherIsDestroyedSoonWhileTheBrokerStalls) {
  service_.behaviour = [&](grpc::ServerContext* context, const PublishRequest&, PublishResponse*) {
    while (!context->IsCancelled()) std::this_thread::sleep_for(milliseconds(5));
    return grpc::Status::CANCELLED;
  };
  Start();
  for (std::uint64_t tag = 0; tag < 20; ++tag) Publish(tag, std::to_string(tag % 5));
  while (service_.requests() == 0) std::this_thread::sleep_for(milliseconds(5));
  const auto begin = std::chrono::steady_clock::now();
  publisher_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(30)) << "the publish timeout is 60 s";
}

TEST(PublishTransportTest, AChannelOnWhichNoCallHasBegunMayBeClosed) {
  std::string error;
  const auto loop = EventLoop::Start("test", &error);
  ASSERT_NE(loop, nullptr) << error;
  loop->Run([&] {
    PublishTransport transport(loop.get(), PublisherOptions(), Credentials(),
                               [](std::uint64_t, const PublishScheduler::Response&) {});
    transport.CloseChannel(7);
  });
}

TEST_F(PublisherTest, PublishersMayBeMadeOneAfterTheOther) {
  for (std::uint64_t tag = 1; tag <= 5; ++tag) {
    Start();
    Publish(tag, "a");
    EXPECT_EQ(Results(1)[0].status, PublishStatus::kPublished);
    publisher_.reset();
  }
  EXPECT_EQ(service_.accepted().size(), 5u);
}

// The signal mask.

// The blocked signals of every thread of this process but its first one.
std::vector<std::uint64_t> BlockedInOtherThreads() {
  std::vector<std::uint64_t> masks;
  DIR* tasks = opendir("/proc/self/task");
  while (const dirent* entry = readdir(tasks)) {
    if (entry->d_name[0] == '.' || std::atoi(entry->d_name) == getpid()) continue;
    std::ifstream status(std::string("/proc/self/task/") + entry->d_name + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("SigBlk:", 0) == 0) masks.push_back(std::stoull(line.substr(7), nullptr, 16));
    }
  }
  closedir(tasks);
  return masks;
}

// Runs in a process of its own that has not used gRPC before. The broker is a third process.
void PublishAndLookAtThreads() {
  int pipe_fds[2];
  if (pipe(pipe_fds) != 0) _exit(10);
  const pid_t broker = fork();
  if (broker == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Service service;
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    const auto server = builder.BuildAndStart();
    if (write(pipe_fds[1], &port, sizeof(port)) != sizeof(port)) _exit(11);
    server->Wait();
    _exit(0);
  }
  int port = 0;
  if (read(pipe_fds[0], &port, sizeof(port)) != sizeof(port)) _exit(12);

  PublisherOptions options;
  options.endpoint = {"127.0.0.1:" + std::to_string(port), true};
  std::string error;
  auto publisher = Publisher::Create(options, &error);
  if (publisher == nullptr) _exit(13);
  int published = 0;
  std::deque<OutgoingMessage> messages;
  for (std::uint64_t tag = 1; tag <= 200; ++tag) {
    messages.push_back(MakeOutgoingMessage(kTopic, std::to_string(tag % 20), "data", {}));
    if (!publisher->Publish(&messages.back())) _exit(14);
  }
  while (publisher->outstanding() > 0) {
    for (const OutgoingMessage* message : publisher->TakeResults())
      published += message->status == PublishStatus::kPublished;
    usleep(1000);
  }
  const std::vector<std::uint64_t> masks = BlockedInOtherThreads();
  // Bits 1..31 are the signals that programs use; SIGKILL and SIGSTOP cannot be blocked.
  const std::uint64_t wanted = 0x7FFFFFFFULL & ~(1ULL << (SIGKILL - 1)) & ~(1ULL << (SIGSTOP - 1));
  int open = 0;
  for (const std::uint64_t mask : masks) open += (mask & wanted) != wanted;
  sigset_t mine;
  pthread_sigmask(SIG_SETMASK, nullptr, &mine);
  const bool main_open = sigismember(&mine, SIGTERM) == 0;
  publisher.reset();
  kill(broker, SIGKILL);
  waitpid(broker, nullptr, 0);
  std::fprintf(stderr, "published %d, threads %zu, with open signals %d, main thread open %d\n",
               published, masks.size(), open, main_open);
  // The publisher's own thread and at least one that gRPC has made.
  _exit(published == 200 && masks.size() >= 2 && open == 0 && main_open ? 0 : 1);
}

TEST(PublisherCredentialsTest, APublisherWithoutCredentialsIsNotMade) {
  PublisherOptions options;
  options.endpoint = {"pubsub.googleapis.com:443", false};
  options.credential.file = "/proc/self/postbox-no-key.json";
  std::string error;
  EXPECT_EQ(Publisher::Create(options, &error), nullptr);
  EXPECT_NE(error.find(options.credential.file), std::string::npos) << error;
}

TEST(PublisherSignalMaskDeathTest, EveryThreadThatGrpcMakesHasItsSignalsBlocked) {
  testing::FLAGS_gtest_death_test_style =
      "threadsafe";  // starts the program again, as a process without gRPC
  EXPECT_EXIT(PublishAndLookAtThreads(), testing::ExitedWithCode(0), "with open signals 0");
}

}  // namespace
}  // namespace postbox::pubsub
