// pull_server: a Pub/Sub server with messages for one StreamingPull stream, for benchmarks of the
// puller. It prints its address when it is ready, and then ten lines a second:
//
//   pull_server listening on 127.0.0.1:PORT
//   <sent> <acked> <first> <last>     (messages; the first and last ack, microseconds since 1970)
//
//   pull_server MESSAGES KEYS [--round-trip MS]
//
// The messages are events of KEYS keys in turn. As many are sent as the first request of the stream
// lets be outstanding, 0 being no limit. An ack makes room for others --round-trip after it has
// come, which is when it is answered, without a thread or a timer for each call. What is nacked is
// sent again, at the end.
// At SIGTERM it prints the last counts and ends.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bench/delay_queue.h"
#include "google/pubsub/v1/pubsub.grpc.pb.h"

namespace {

namespace pubsub = google::pubsub::v1;

// In a response, and the length of an ack id: about those of the service.
constexpr int kMessagesOfResponse = 100;
constexpr std::size_t kAckIdLength = 176;

int64_t NowMicros() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

class Feed {
 public:
  Feed(int64_t messages, int64_t keys) : messages_(messages), keys_(keys) {}

  // Fills in the next messages, at most `most` of them.
  void Fill(pubsub::StreamingPullResponse* response, int64_t most) {
    for (int i = 0; i < kMessagesOfResponse && i < most; ++i) {
      int64_t number = 0;
      if (next_ < messages_) {
        number = next_++;
      } else if (!nacked_.empty()) {
        number = nacked_.front();
        nacked_.pop_front();
      } else {
        return;
      }
      Fill(number, response->add_received_messages());
      ++sent;
    }
  }
  void Nack(int64_t number) { nacked_.push_back(number); }

  int64_t sent = 0;
  int64_t acked = 0;
  int64_t first_ack = 0;
  int64_t last_ack = 0;

 private:
  void Fill(int64_t number, pubsub::ReceivedMessage* received) const {
    const std::string key = "v_" + std::to_string(number % keys_);
    std::string ack_id = std::to_string(number);
    ack_id.resize(kAckIdLength, '-');
    received->set_ack_id(std::move(ack_id));
    pubsub::PubsubMessage* message = received->mutable_message();
    message->set_data(R"({"title": "a title of moderate length", "video_id": ")" + key + "\"}");
    char event_id[37];
    std::snprintf(event_id, sizeof(event_id), "019aa000-0000-7000-8000-%012llx",
                  static_cast<unsigned long long>(number));
    auto& attributes = *message->mutable_attributes();
    attributes["event_id"] = event_id;
    attributes["event_type"] = "video.updated";
    attributes["aggregate_id"] = key;
    attributes["aggregate_type"] = "video";
    attributes["version"] = std::to_string(number / keys_ + 1);
    attributes["occurred_at"] = "2026-01-01T00:00:00.000000Z";
    attributes["schema_version"] = "v1";
    message->set_message_id(std::to_string(number + 1));
    message->mutable_publish_time()->set_seconds(NowMicros() / 1'000'000);
    message->set_ordering_key(key);
  }

  const int64_t messages_;
  const int64_t keys_;
  int64_t next_ = 0;
  std::deque<int64_t> nacked_;
};

std::mutex mutex;  // of what follows
Feed* feed = nullptr;
class Stream* stream = nullptr;  // the one that is open
DelayQueue* delay_queue = nullptr;

class Stream
    : public grpc::ServerBidiReactor<pubsub::StreamingPullRequest, pubsub::StreamingPullResponse> {
 public:
  Stream() { StartRead(&request_); }

  void OnReadDone(bool ok) override {
    if (!ok) {
      End();
      return;
    }
    if (!std::exchange(begun_, true)) {
      if (request_.max_outstanding_messages() > 0) most_ = request_.max_outstanding_messages();
      const std::lock_guard<std::mutex> lock(mutex);
      stream = this;
      Write();
    }
    StartRead(&request_);  // pings
  }
  void OnWriteDone(bool ok) override {
    const std::lock_guard<std::mutex> lock(mutex);
    writing_ = false;
    if (ok) Write();
  }
  void OnCancel() override { End(); }
  void OnDone() override { delete this; }

  // Under the mutex.
  void Settled(int messages) { outstanding_ -= messages; }
  void Write() {
    if (writing_ || ended_) return;
    response_.Clear();
    feed->Fill(&response_, most_ - outstanding_);
    if (response_.received_messages_size() == 0) return;
    outstanding_ += response_.received_messages_size();
    response_.mutable_subscription_properties()->set_message_ordering_enabled(true);
    writing_ = true;
    StartWrite(&response_);
  }

 private:
  void End() {
    const std::lock_guard<std::mutex> lock(mutex);
    if (std::exchange(ended_, true)) return;
    if (stream == this) stream = nullptr;
    Finish(grpc::Status::OK);
  }

  pubsub::StreamingPullRequest request_;
  pubsub::StreamingPullResponse response_;
  bool begun_ = false;
  bool writing_ = false;
  bool ended_ = false;
  int64_t most_ = std::numeric_limits<int64_t>::max();
  int64_t outstanding_ = 0;
};

class Service : public pubsub::Subscriber::CallbackService {
  grpc::ServerBidiReactor<pubsub::StreamingPullRequest, pubsub::StreamingPullResponse>*
  StreamingPull(grpc::CallbackServerContext* /*context*/) override {
    return new Stream;
  }

  grpc::ServerUnaryReactor* Acknowledge(grpc::CallbackServerContext* context,
                                        const pubsub::AcknowledgeRequest* request,
                                        google::protobuf::Empty* /*response*/) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    delay_queue->Run([reactor, messages = request->ack_ids_size()] {
      {
        const std::lock_guard<std::mutex> lock(mutex);
        feed->acked += messages;
        feed->last_ack = NowMicros();
        if (feed->first_ack == 0) feed->first_ack = feed->last_ack;
        Settled(messages);
      }
      reactor->Finish(grpc::Status::OK);
    });
    return reactor;
  }

  grpc::ServerUnaryReactor* ModifyAckDeadline(grpc::CallbackServerContext* context,
                                              const pubsub::ModifyAckDeadlineRequest* request,
                                              google::protobuf::Empty* /*response*/) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    std::vector<int64_t> nacked;
    if (request->ack_deadline_seconds() == 0) {
      for (const std::string& id : request->ack_ids()) nacked.push_back(std::atoll(id.c_str()));
    }
    delay_queue->Run([reactor, nacked = std::move(nacked)] {
      if (!nacked.empty()) {
        const std::lock_guard<std::mutex> lock(mutex);
        for (const int64_t number : nacked) feed->Nack(number);
        Settled(static_cast<int>(nacked.size()));
      }
      reactor->Finish(grpc::Status::OK);
    });
    return reactor;
  }

  static void Settled(int messages) {
    if (stream == nullptr) return;
    stream->Settled(messages);
    stream->Write();
  }
};

}  // namespace

int main(int argc, char** argv) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  if (argc != 3 && (argc != 5 || std::string(argv[3]) != "--round-trip")) {
    std::fprintf(stderr, "usage: pull_server MESSAGES KEYS [--round-trip MS]\n");
    return 2;
  }
  feed = new Feed(std::atoll(argv[1]), std::max(1LL, std::atoll(argv[2])));
  // Its thread never ends.
  delay_queue = new DelayQueue(std::chrono::milliseconds(argc == 5 ? std::atoll(argv[4]) : 0));

  Service service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  auto server = builder.BuildAndStart();
  if (!server) return 1;
  std::printf("pull_server listening on 127.0.0.1:%d\n", port);
  std::fflush(stdout);

  const timespec tenth{0, 100'000'000};
  bool ended = false;
  while (!ended) {
    ended = sigtimedwait(&signals, nullptr, &tenth) > 0;
    {
      const std::lock_guard<std::mutex> lock(mutex);
      std::printf("%lld %lld %lld %lld\n", static_cast<long long>(feed->sent),
                  static_cast<long long>(feed->acked), static_cast<long long>(feed->first_ack),
                  static_cast<long long>(feed->last_ack));
    }
    std::fflush(stdout);
  }
  server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  return 0;
}
