// A Subscriber service for tests, in the same process. The test decides what each stream sends and
// how each ack is answered, and sees every request.

#ifndef POSTBOX_WORKER_PUBSUB_PULL_FAKE_SUBSCRIBER_SERVICE_H_
#define POSTBOX_WORKER_PUBSUB_PULL_FAKE_SUBSCRIBER_SERVICE_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "google/pubsub/v1/pubsub.grpc.pb.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace postbox::pubsub {

class FakeSubscriberService : public google::pubsub::v1::Subscriber::CallbackService {
 public:
  using StreamingPullRequest = google::pubsub::v1::StreamingPullRequest;
  using StreamingPullResponse = google::pubsub::v1::StreamingPullResponse;
  using Lock = std::unique_lock<std::recursive_mutex>;

  struct AckCall {
    int deadline_seconds = -1;  // -1: Acknowledge
    std::vector<std::string> ids;
  };

  // One stream. Its members are used under the lock, that is, in WaitFor and Locked.
  class Session : public grpc::ServerBidiReactor<StreamingPullRequest, StreamingPullResponse> {
   public:
    explicit Session(FakeSubscriberService* service) : service_(service) { StartRead(&request_); }

    std::optional<StreamingPullRequest> first;
    int pings = 0;
    bool answer_pings = false;
    bool half_closed = false;
    bool done = false;

    void Send(StreamingPullResponse response) {
      to_send_.push_back(std::move(response));
      WriteNext();
    }
    void End(grpc::Status status) {
      end_ = std::move(status);
      WriteNext();
    }

    void OnReadDone(bool ok) override {
      const Lock lock(service_->mutex_);
      if (!ok) {
        half_closed = true;
        if (!end_) End(grpc::Status::OK);
      } else {
        if (!first) {
          first = request_;
        } else {
          ++pings;
          if (answer_pings) Send(StreamingPullResponse());
        }
        StartRead(&request_);
      }
      service_->changed_.notify_all();
    }
    void OnWriteDone(bool) override {
      const Lock lock(service_->mutex_);
      writing_ = false;
      to_send_.pop_front();
      WriteNext();
    }
    void OnDone() override {
      const Lock lock(service_->mutex_);
      done = true;
      service_->changed_.notify_all();
    }

   private:
    void WriteNext() {
      if (writing_ || finished_) return;
      if (!to_send_.empty()) {
        writing_ = true;
        StartWrite(&to_send_.front());
      } else if (end_) {
        finished_ = true;
        Finish(*end_);
      }
    }

    FakeSubscriberService* const service_;
    StreamingPullRequest request_;
    std::deque<StreamingPullResponse> to_send_;
    std::optional<grpc::Status> end_;
    bool writing_ = false;
    bool finished_ = false;
  };

  FakeSubscriberService() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeSubscriberService() override {
    {
      const Lock lock(mutex_);
      hold_answers = false;
      AnswerHeld();
    }
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
    EXPECT_TRUE(WaitFor([&] {
      for (const auto& session : sessions) {
        if (!session->done) return false;
      }
      return true;
    }));
    server_.reset();
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  // Returns true as soon as the condition holds, and false if it does not hold within 90 seconds.
  bool WaitFor(const std::function<bool()>& condition) {
    Lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(90), condition);
  }
  // Runs `f` under the lock and wakes the callers of WaitFor.
  template <class F>
  auto Locked(F&& f) {
    const Lock lock(mutex_);
    changed_.notify_all();
    return f();
  }

  // For use under the lock.
  std::vector<std::unique_ptr<Session>> sessions;
  bool answer_pings = false;  // of new sessions
  std::vector<AckCall> calls;
  std::function<grpc::Status(const AckCall&)> answer = [](const AckCall&) {
    return grpc::Status::OK;
  };
  bool hold_answers = false;  // calls are recorded, and answered by AnswerHeld

  void AnswerHeld() {
    for (auto& [reactor, call] : held_) reactor->Finish(answer(call));
    held_.clear();
  }

  // True if this id was acked (kind -1), nacked (0) or its lease was extended (1).
  bool Asked(int kind, const std::string& id) const {
    for (const auto& call : calls) {
      if (std::clamp(call.deadline_seconds, -1, 1) != kind) continue;
      for (const auto& asked : call.ids) {
        if (asked == id) return true;
      }
    }
    return false;
  }

  // The status by which the service tells the result of each ack id.
  static grpc::Status AckFailure(const std::map<std::string, std::string>& metadata) {
    google::rpc::ErrorInfo info;
    info.mutable_metadata()->insert(metadata.begin(), metadata.end());
    google::rpc::Status status;
    status.add_details()->PackFrom(info);
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "some failed",
                        status.SerializeAsString());
  }

  grpc::ServerBidiReactor<StreamingPullRequest, StreamingPullResponse>* StreamingPull(
      grpc::CallbackServerContext*) override {
    const Lock lock(mutex_);
    sessions.push_back(std::make_unique<Session>(this));
    sessions.back()->answer_pings = answer_pings;
    return sessions.back().get();
  }
  grpc::ServerUnaryReactor* Acknowledge(grpc::CallbackServerContext* context,
                                        const google::pubsub::v1::AcknowledgeRequest* request,
                                        google::protobuf::Empty*) override {
    return Answer(context, AckCall{-1, {request->ack_ids().begin(), request->ack_ids().end()}});
  }
  grpc::ServerUnaryReactor* ModifyAckDeadline(
      grpc::CallbackServerContext* context,
      const google::pubsub::v1::ModifyAckDeadlineRequest* request,
      google::protobuf::Empty*) override {
    return Answer(context, AckCall{request->ack_deadline_seconds(),
                                   {request->ack_ids().begin(), request->ack_ids().end()}});
  }

 private:
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, AckCall call) {
    const Lock lock(mutex_);
    calls.push_back(call);
    changed_.notify_all();
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    if (hold_answers) {
      held_.emplace_back(reactor, std::move(call));
    } else {
      reactor->Finish(answer(call));
    }
    return reactor;
  }

  int port_ = 0;
  std::recursive_mutex mutex_;  // gRPC may call back from within StartWrite and Finish
  std::condition_variable_any changed_;
  std::vector<std::pair<grpc::ServerUnaryReactor*, AckCall>> held_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PULL_FAKE_SUBSCRIBER_SERVICE_H_
