#include "worker/puller/runner.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <utility>

#include "proto/rules/backoff.h"
#include "worker/puller/failpoint.h"
#include "worker/puller/log.h"

namespace postbox::puller {
namespace {

// The most bytes that one transaction applies; its first event may be larger.
constexpr size_t kMaxBatchBytes = 16 << 20;
// How long the last acks and nacks are waited for.
constexpr std::chrono::seconds kSettleTimeout{5};

}  // namespace

Runner::Runner(SubscriptionConfig config, std::string dsn)
    : config_(std::move(config)),
      dsn_(std::move(dsn)),
      dead_letter_topic_(config_.endpoint, config_.quota_project, config_.dead_letter_topic,
                         config_.subscription) {}

Runner::~Runner() { Finish(Clock::now()); }

bool Runner::Start(std::string* error) {
  pubsub::SubscriberOptions options;
  options.endpoint = config_.endpoint;
  options.subscription = config_.subscription;
  options.quota_project = config_.quota_project;
  options.max_outstanding_messages = config_.max_outstanding_messages;
  options.max_outstanding_bytes = config_.max_outstanding_bytes;
  pubsub::SubscriberCallbacks callbacks;
  callbacks.on_message = [this](pubsub::ReceivedMessage message) { OnMessage(std::move(message)); };
  callbacks.on_settled = [this](uint64_t handle, pubsub::Settlement settlement) {
    if (settlement == pubsub::Settlement::kDone) return Failpoint("after_ack");
    LogDebug("ack or nack not taken, the message may be delivered again",
             {{"subscription", config_.name}, {"handle", handle}});
  };
  callbacks.on_connected = [this](bool exactly_once, bool ordered) {
    LogDebug(
        "stream connected",
        {{"subscription", config_.name}, {"exactly_once", exactly_once}, {"ordered", ordered}});
  };
  callbacks.on_failure = [this](const std::string& text) {
    LogWarn("stream failed, trying again", {{"subscription", config_.name}, {"error", text}});
  };
  callbacks.on_fatal = [this](const std::string& text) {
    LogError("subscription failed", {{"subscription", config_.name},
                                     {"pubsub_subscription", config_.subscription},
                                     {"error", text}});
    const std::lock_guard<std::mutex> lock(mutex_);
    failed_ = true;
  };
  subscriber_ = pubsub::Subscriber::Create(std::move(options), std::move(callbacks), error);
  if (!subscriber_) return false;
  // The appliers start last, because they ack through subscriber_. Messages that have arrived
  // already wait in the queues.
  for (int i = 0; i < config_.appliers; ++i) {
    Applier applier;
    applier.inbox =
        std::make_unique<DatabaseInboxClient>(dsn_, "postbox pull " + config_.name, config_.inbox);
    applier.thread = std::thread([this, inbox = applier.inbox.get()] { ApplierLoop(inbox); });
    appliers_.push_back(std::move(applier));
  }
  LogInfo("subscription started", {{"subscription", config_.name},
                                   {"pubsub_subscription", config_.subscription},
                                   {"inbox", config_.inbox_name},
                                   {"endpoint", config_.endpoint.address}});
  return true;
}

bool Runner::failed() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failed_;
}

void Runner::OnMessage(pubsub::ReceivedMessage message) {
  Delivery delivery;
  delivery.event = ParseEvent(&message);
  delivery.message = std::move(message);
  bool wake = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const size_t before = queues_.ready();
    queues_.Push(std::move(delivery), Clock::now());
    const size_t after = queues_.ready();
    const auto full = static_cast<size_t>(config_.batch_size);
    // Between these two events an applier waits for a time that it knows.
    wake = before == 0 || (before < full && after >= full);
  }
  if (wake) changed_.notify_all();
}

Runner::Clock::time_point Runner::NextWork(bool connected, Clock::time_point connect_at) {
  auto next = Clock::now() + std::chrono::minutes(1);
  if (auto retry_at = queues_.NextRetry()) next = std::min(next, *retry_at);
  if (!connected) {
    next = std::min(next, connect_at);
  } else if (auto since = queues_.ready_since()) {
    const bool full = queues_.ready() >= static_cast<size_t>(config_.batch_size);
    next = std::min(next, full ? *since : *since + config_.batch_delay);
  }
  return next;
}

void Runner::ApplierLoop(DatabaseInboxClient* inbox) {
  ApplyPolicy policy;
  policy.subscription = config_.name;
  policy.on_error = config_.on_error;
  policy.max_attempts = config_.max_attempts;
  policy.backoff = {config_.min_backoff, 2.0, config_.max_backoff};
  BatchApplier applier(
      std::move(policy), inbox,
      [this](const Delivery& delivery, const std::string& sqlstate, const std::string& message,
             std::string* error) {
        return dead_letter_topic_.Publish(delivery, sqlstate, message, error);
      },
      &attempts_);
  pubsub::Backoff reconnect(pubsub::kReconnectBackoff);
  auto connect_at = Clock::now();

  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    const auto now = Clock::now();
    if (auto handles = queues_.TakeSuspended(now); !handles.empty()) {
      lock.unlock();
      for (uint64_t handle : handles) subscriber_->Nack(handle);
      lock.lock();
      continue;
    }
    const bool connected = inbox->connected();
    const auto next = NextWork(connected, connect_at);
    if (next > now) {
      changed_.wait_until(lock, next);
      continue;
    }
    if (!connected) {
      lock.unlock();
      std::string error;
      if (inbox->Connect(&error)) {
        reconnect.Reset();
      } else {
        const auto delay = reconnect.Next();
        connect_at = Clock::now() + delay;
        LogWarn(
            "no connection to the database",
            {{"subscription", config_.name}, {"error", error}, {"retry_after_ms", delay.count()}});
      }
      lock.lock();
      continue;
    }
    std::vector<Delivery> batch =
        queues_.Take(static_cast<size_t>(config_.batch_size), kMaxBatchBytes);
    ++busy_;
    lock.unlock();
    ApplyBatch(std::move(batch), &applier);
    lock.lock();
    --busy_;
    changed_.notify_all();
  }
}

void Runner::ApplyBatch(std::vector<Delivery> batch, BatchApplier* applier) {
  Failpoint("before_apply");
  const auto begin = Clock::now();
  const std::vector<Disposition> dispositions = applier->Apply(batch);
  Failpoint("after_commit_before_ack");

  for (size_t i = 0; i < batch.size(); ++i) {
    if (dispositions[i].kind == Disposition::kSettled) subscriber_->Ack(batch[i].message.handle);
  }
  if (spdlog::should_log(spdlog::level::debug)) {
    LogApplied(batch, dispositions, Clock::now() - begin);
  }
  ReturnToQueues(dispositions, &batch);
}

void Runner::LogApplied(const std::vector<Delivery>& batch,
                        const std::vector<Disposition>& dispositions, Clock::duration took) const {
  std::map<std::string, size_t> outcomes;
  for (const Disposition& disposition : dispositions) {
    ++outcomes[disposition.kind == Disposition::kSettled ? disposition.outcome : "failed"];
  }
  const auto took_us = std::chrono::duration_cast<std::chrono::microseconds>(took);
  LogDebug("batch applied", {{"subscription", config_.name},
                             {"events", batch.size()},
                             {"outcomes", outcomes},
                             {"took_us", took_us.count()}});
  for (size_t i = 0; i < batch.size(); ++i) {
    if (dispositions[i].kind != Disposition::kSettled) continue;
    Fields fields = EventFields(config_.name, batch[i]);
    fields["outcome"] = dispositions[i].outcome;
    LogDebug("event applied", fields);
  }
}

void Runner::ReturnToQueues(const std::vector<Disposition>& dispositions,
                            std::vector<Delivery>* batch) {
  std::map<std::string, std::vector<size_t>> positions_of;  // by queue key
  for (size_t i = 0; i < batch->size(); ++i) positions_of[(*batch)[i].queue_key()].push_back(i);

  const std::lock_guard<std::mutex> lock(mutex_);
  const auto now = Clock::now();
  for (const auto& [queue_key, positions] : positions_of) {
    std::vector<Delivery> unsettled;
    auto retry_at = now;
    for (size_t i : positions) {
      if (dispositions[i].kind == Disposition::kSettled) continue;
      if (unsettled.empty()) retry_at = now + dispositions[i].delay;
      unsettled.push_back(std::move((*batch)[i]));
    }
    if (unsettled.empty()) {
      queues_.Done(queue_key, now);
    } else {
      queues_.Fail(queue_key, std::move(unsettled), retry_at);
    }
  }
}

void Runner::StopPulling() {
  if (subscriber_) subscriber_->StopPulling();
}

void Runner::Finish(Clock::time_point deadline) {
  if (finished_) return;
  finished_ = true;
  StopPulling();
  {
    std::unique_lock<std::mutex> lock(mutex_);
    // Suspended messages are not waited for; they are to be nacked anyway.
    changed_.wait_until(lock, deadline, [this] { return busy_ == 0 && queues_.ready() == 0; });
    stopping_ = true;
    changed_.notify_all();
  }
  {
    // A batch whose statement is cancelled is rolled back, and nacked with the rest.
    std::unique_lock<std::mutex> lock(mutex_);
    while (busy_ > 0) {
      lock.unlock();
      for (Applier& applier : appliers_) applier.inbox->Cancel();
      lock.lock();
      changed_.wait_for(lock, std::chrono::seconds(1), [this] { return busy_ == 0; });
    }
  }
  for (Applier& applier : appliers_) applier.thread.join();
  if (subscriber_) {
    for (uint64_t handle : queues_.Drain()) subscriber_->Nack(handle);
    subscriber_->Stop(kSettleTimeout);
  }
  LogInfo("subscription stopped", {{"subscription", config_.name}});
}

}  // namespace postbox::puller
