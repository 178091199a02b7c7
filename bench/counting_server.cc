// counting_server: a Pub/Sub server that takes every Publish and only counts, for benchmarks of the
// publisher. It prints its address when it is ready, and then ten lines a second:
//
//   counting_server listening on 127.0.0.1:PORT
//   <requests> <messages> <first> <last>     (first and last arrival, microseconds since 1970)
//
// With --record FILE it also writes a line for each message in the order of arrival:
//   <microseconds since 1970>\t<ordering key>\t<event_id>
//
// Topics whose name begins with "hostile" are not counted. One of them is "hostile-refused": it
// answers INVALID_ARGUMENT, as all of them do to the ordering key "refused". "hostile-silent" never
// answers.
//
// With --round-trip MS it answers that much later, without a thread or a timer for each call, as a
// service does that is so far away. A connection has 100 streams, as those of Google's front ends.
//
// It reads requests in wire format, skips what it does not count, and gives every message the same
// id. At SIGTERM it prints the last counts and ends.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "bench/delay_queue.h"
#include "google/pubsub/v1/pubsub.pb.h"

namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

std::atomic<uint64_t> requests{0};
std::atomic<uint64_t> messages{0};
std::atomic<int64_t> first_arrival{0};
std::atomic<int64_t> last_arrival{0};
std::FILE* record = nullptr;
std::mutex record_mutex;
DelayQueue* delay_queue = nullptr;

int64_t NowMicros() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Writes the line of --record for a PubsubMessage.
void RecordMessage(const std::string& bytes, int64_t now) {
  google::pubsub::v1::PubsubMessage message;
  message.ParseFromString(bytes);
  const auto id = message.attributes().find("event_id");
  std::fprintf(record, "%lld\t%s\t%s\n", static_cast<long long>(now),
               message.ordering_key().c_str(),
               id == message.attributes().end() ? "" : id->second.c_str());
}

enum class Answer { kTake, kRefuse, kNone };

struct Request {
  uint64_t messages = 0;
  bool counted = true;
  Answer answer = Answer::kTake;
};

// The topic stands before the messages.
void ReadTopic(const std::string& name, Request* request) {
  const std::string topic = name.substr(name.rfind('/') + 1);
  request->counted = !topic.starts_with("hostile");
  if (topic == "hostile-refused") request->answer = Answer::kRefuse;
  if (topic == "hostile-silent") request->answer = Answer::kNone;
}

// All messages of a request have the same key.
bool HasRefusedKey(const std::string& bytes) {
  google::pubsub::v1::PubsubMessage message;
  return message.ParseFromString(bytes) && message.ordering_key() == "refused";
}

// Counts the messages of a PublishRequest.
Request Count(const uint8_t* data, size_t size, int64_t now) {
  CodedInputStream input(data, static_cast<int>(size));
  Request request;
  while (const uint32_t tag = input.ReadTag()) {
    uint32_t length = 0;
    if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED ||
        !input.ReadVarint32(&length)) {
      break;
    }
    const int field = WireFormatLite::GetTagFieldNumber(tag);
    const bool is_topic = field == google::pubsub::v1::PublishRequest::kTopicFieldNumber;
    const bool is_message = field == google::pubsub::v1::PublishRequest::kMessagesFieldNumber;
    if (is_message) ++request.messages;
    const bool looked_at =
        request.counted ? record != nullptr : request.messages == 1;  // its key is that of all
    if (is_topic || (is_message && looked_at)) {
      std::string bytes;
      input.ReadString(&bytes, static_cast<int>(length));
      if (is_topic) {
        ReadTopic(bytes, &request);
      } else if (request.counted) {
        RecordMessage(bytes, now);
      } else if (HasRefusedKey(bytes)) {
        request.answer = Answer::kRefuse;
      }
    } else {
      input.Skip(static_cast<int>(length));
    }
  }
  return request;
}

Request Take(const grpc::ByteBuffer& buffer) {
  const int64_t now = NowMicros();
  grpc::Slice slice;
  std::string assembled;
  std::unique_lock<std::mutex> lock(record_mutex, std::defer_lock);
  if (record != nullptr) lock.lock();
  Request request;
  if (buffer.TrySingleSlice(&slice).ok()) {
    request = Count(slice.begin(), slice.size(), now);
  } else {
    std::vector<grpc::Slice> slices;
    (void)buffer.Dump(&slices);
    for (const grpc::Slice& piece : slices) {
      assembled.append(reinterpret_cast<const char*>(piece.begin()), piece.size());
    }
    request = Count(reinterpret_cast<const uint8_t*>(assembled.data()), assembled.size(), now);
  }
  if (record != nullptr) std::fflush(record);
  if (!request.counted) return request;
  int64_t none = 0;
  first_arrival.compare_exchange_strong(none, now);
  last_arrival.store(now);
  messages.fetch_add(request.messages);
  requests.fetch_add(1);
  return request;
}

class Reactor : public grpc::ServerGenericBidiReactor {
 public:
  Reactor() { StartRead(&request_); }
  void OnReadDone(bool ok) override {
    if (!ok) {
      Finish(grpc::Status(grpc::StatusCode::INTERNAL, "no request"));
      return;
    }
    const Request request = Take(request_);
    if (request.answer == Answer::kNone) {
      waiting_ = true;
      return;
    }
    delay_queue->Run([this, request] { AnswerTo(request); });
  }
  void OnCancel() override {
    if (waiting_.exchange(false)) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  void AnswerTo(const Request& request) {
    if (request.answer == Answer::kRefuse) {
      Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "refused"));
      return;
    }
    // message_ids: field 1, one byte each.
    std::string bytes;
    bytes.reserve(3 * request.messages);
    for (uint64_t i = 0; i < request.messages; ++i) bytes.append("\x0a\x01\x31", 3);
    const grpc::Slice slice(bytes);
    response_ = grpc::ByteBuffer(&slice, 1);
    StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
  }

  std::atomic<bool> waiting_{false};  // for the end of a call that is not answered
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
};

class Refuse : public grpc::ServerGenericBidiReactor {
 public:
  Refuse() { Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "only Publish is counted")); }
  void OnDone() override { delete this; }
};

class Service : public grpc::CallbackGenericService {
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    if (context->method() == "/google.pubsub.v1.Publisher/Publish") return new Reactor;
    return new Refuse;
  }
};

}  // namespace

int main(int argc, char** argv) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  int64_t round_trip = 0;
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--record" && i + 1 < argc) {
      record = std::fopen(argv[i + 1], "w");
      if (record == nullptr) {
        std::perror(argv[i + 1]);
        return 1;
      }
    } else if (option == "--round-trip" && i + 1 < argc) {
      round_trip = std::atoll(argv[i + 1]);
    } else {
      std::fprintf(stderr, "usage: counting_server [--record FILE] [--round-trip MS]\n");
      return 2;
    }
  }
  delay_queue = new DelayQueue(std::chrono::milliseconds(round_trip));  // its thread never ends

  Service service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(20 << 20);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 100);
  builder.RegisterCallbackGenericService(&service);
  auto server = builder.BuildAndStart();
  if (!server) return 1;
  std::printf("counting_server listening on 127.0.0.1:%d\n", port);
  std::fflush(stdout);

  const timespec tenth{0, 100'000'000};
  bool ended = false;
  while (!ended) {
    ended = sigtimedwait(&signals, nullptr, &tenth) > 0;
    std::printf("%llu %llu %lld %lld\n", static_cast<unsigned long long>(requests.load()),
                static_cast<unsigned long long>(messages.load()),
                static_cast<long long>(first_arrival.load()),
                static_cast<long long>(last_arrival.load()));
    std::fflush(stdout);
  }
  server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  if (record != nullptr) std::fclose(record);
  return 0;
}
