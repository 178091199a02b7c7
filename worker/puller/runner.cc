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
// How long a shutdown waits for dead letters that are on their way.
constexpr std::chrono::milliseconds kLetterTimeout{1000};
// The last part of a shutdown: what is left is given back then. Of it, in percent, the time for the
// end of the statements that it has cancelled, for the last acks and nacks, and for the removal of
// the report. The rest is for the ends of threads.
constexpr std::chrono::seconds kLeastClosing{2};
constexpr std::chrono::seconds kMostClosing{5};
constexpr int kCancelShare = 25;
constexpr int kSettleShare = 35;
constexpr int kReportShare = 10;

// How long a thread with work may show no progress, beside statement_timeout: more than it takes to
// connect, or to wait for the end of a statement, its cancel and its ROLLBACK (database.h).
constexpr std::chrono::seconds kStuckTime{150};

}  // namespace

Runner::Runner(SubscriptionConfig config, std::string dsn, std::shared_ptr<PullStatus> status,
               ConnectionShares* shares)
    : config_(std::move(config)),
      dsn_(std::move(dsn)),
      status_(std::move(status)),
      gate_(config_.appliers),
      dead_letter_topic_(
          {.endpoint = config_.endpoint,
           .quota_project = config_.quota_project,
           .credential = config_.credential},
          config_.dead_letter_topic, config_.subscription,
          [this](DeadLetterTopic::Letter letter) { OnDeadLetterResult(std::move(letter)); }),
      batch_timer_(config_.batch_delay),
      connections_(shares),
      letter_backoff_({config_.min_backoff, 2.0, config_.max_backoff}) {}

Runner::~Runner() { Finish(Clock::now()); }

bool Runner::Start(std::string* error) {
  pubsub::SubscriberOptions options;
  options.endpoint = config_.endpoint;
  options.subscription = config_.subscription;
  options.quota_project = config_.quota_project;
  options.credential = config_.credential;
  options.max_outstanding_messages = config_.max_outstanding_messages;
  options.max_outstanding_bytes = config_.max_outstanding_bytes;
  pubsub::SubscriberCallbacks callbacks;
  callbacks.on_messages = [this](std::vector<pubsub::ReceivedMessage> messages) {
    OnMessages(std::move(messages));
  };
  callbacks.on_settled = [this](uint64_t handle, pubsub::Settlement settlement) {
    if (settlement == pubsub::Settlement::kDone) return Failpoint("after_ack");
    LogDebug("ack or nack not taken, the message may be delivered again",
             {{"subscription", config_.name}, {"handle", handle}});
  };
  callbacks.on_connected = [this](bool exactly_once, bool ordered) {
    ordered_ = ordered;
    SetStreamState(PullStatus::Stream::kConnected, "");
    LogDebug(
        "stream connected",
        {{"subscription", config_.name}, {"exactly_once", exactly_once}, {"ordered", ordered}});
  };
  callbacks.on_ack_failure = [this](const std::string& text) { AckFailed(text); };
  callbacks.on_failure = [this](const std::string& text) {
    SetStreamState(PullStatus::Stream::kReconnecting, text);
    LogRepeated("stream failed, trying again", {{"subscription", config_.name}, {"error", text}});
  };
  callbacks.on_fatal = [this](const std::string& text) {
    LogError("subscription failed", {{"subscription", config_.name},
                                     {"pubsub_subscription", config_.subscription},
                                     {"error", text}});
    SetStreamState(PullStatus::Stream::kFailed, text);
    const std::lock_guard<std::mutex> lock(mutex_);
    failed_ = true;
  };
  subscriber_ = pubsub::Subscriber::Create(std::move(options), std::move(callbacks), error);
  if (!subscriber_) return false;
  StartAppliers();
  LogInfo("subscription started", {{"subscription", config_.name},
                                   {"pubsub_subscription", config_.subscription},
                                   {"inbox", config_.inbox_name},
                                   {"endpoint", config_.endpoint.address}});
  return true;
}

// Last, because they ack through subscriber_. Messages that have arrived already wait in the
// queues.
void Runner::StartAppliers() {
  for (int i = 0; i < config_.appliers; ++i) {
    Applier applier;
    applier.inbox = std::make_unique<DatabaseInboxClient>(
        dsn_, "postbox pull " + config_.name, config_.inbox, config_.event_type,
        TransactionLimits{.statement_timeout = config_.statement_timeout,
                          .lock_timeout = config_.lock_timeout});
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ++running_;
    }
    applier.thread = std::thread([this, inbox = applier.inbox.get()] { ApplierLoop(inbox); });
    appliers_.push_back(std::move(applier));
  }
}

void Runner::SetStreamState(PullStatus::Stream stream, const std::string& error) {
  status_->SetStreamState(stream, Cut(error, QueryResult::kMaxErrorBytes), Clock::now());
  WakeApplier();
}

void Runner::AckFailed(const std::string& error) {
  status_->AckFailed(Cut(error, QueryResult::kMaxErrorBytes), Clock::now());
  WakeApplier();
  LogRepeated("acks not taken, trying again", {{"subscription", config_.name}, {"error", error}});
}

void Runner::WakeApplier() {
  {
    // So that an applier that is about to wait has seen the change, or hears of it.
    const std::lock_guard<std::mutex> lock(mutex_);
  }
  // Not one of them: it may be one that has no connection to report over.
  changed_.notify_all();
}

bool Runner::failed() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failed_;
}

bool Runner::Stuck() {
  const auto limit = TimeOf("stuck_time", kStuckTime);
  const auto now = Clock::now();
  const Clock::duration io_silent = now - io_progressed_at_.load();
  subscriber_->GiveBack([this] {
    io_progressed_at_ = Clock::now();
    return std::vector<uint64_t>();
  });
  if (io_silent > limit) return true;
  // Without a limit for statements a long one looks like a thread that is stuck.
  if (config_.statement_timeout.count() == 0) return false;
  const auto least = now - limit - config_.statement_timeout;
  return std::any_of(appliers_.begin(), appliers_.end(), [&](const Applier& applier) {
    return applier.inbox->progressed_at() < least;
  });
}

void Runner::OnMessages(std::vector<pubsub::ReceivedMessage> messages) {
  std::vector<Delivery> deliveries;
  deliveries.reserve(messages.size());
  bool wake = false;
  for (pubsub::ReceivedMessage& message : messages) {
    Delivery& delivery = deliveries.emplace_back();
    delivery.event = ParseEvent(message);
    delivery.message = std::move(message);
    if (delivery.event.version_left_alone) {
      LogRepeated("an event has no version: the member version of its JSON body is no number",
                  EventFields(config_.name, delivery));
    }
    delivery.suspect = attempts_.Known(delivery.message.message_id);
    wake = wake || delivery.suspect;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const size_t before = queues_.ready();
    const auto now = Clock::now();
    for (Delivery& delivery : deliveries) queues_.Push(std::move(delivery), now);
    const size_t after = queues_.ready();
    const auto full = static_cast<size_t>(config_.batch_size);
    // Between these two events an applier waits for a time that it knows.
    wake = wake || before == 0 || (before < full && after >= full);
  }
  if (wake) changed_.notify_all();
}

std::optional<Runner::Clock::time_point> Runner::NextSuspect() const {
  if (suspects_ >= std::max(1, config_.appliers - 1)) return std::nullopt;
  return queues_.suspect_since();
}

std::vector<Delivery> Runner::TakeBatch(size_t limit, PacedInbox* inbox) {
  inbox->Enter();
  const auto suspect = NextSuspect();
  const auto ready = queues_.ready_since();
  if (suspect && (!ready || *suspect < *ready)) return queues_.TakeSuspect();
  batch_timer_.Begun(Clock::now());
  return queues_.Take(limit, kMaxBatchBytes);
}

void Runner::GiveBackSuspended(Clock::time_point now) {
  const auto retry_at = queues_.NextRetry();
  if (giving_back_ || !retry_at || *retry_at > now) return;
  giving_back_ = true;
  subscriber_->GiveBack([this] {
    std::vector<uint64_t> handles;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      giving_back_ = false;
      handles = queues_.TakeSuspended(Clock::now());
    }
    changed_.notify_one();  // somebody has to wait for the next retry_at
    return handles;
  });
}

ApplyPolicy Runner::Policy() const {
  ApplyPolicy policy;
  policy.subscription = config_.name;
  policy.on_error = config_.on_error;
  policy.max_attempts = config_.max_attempts;
  policy.batch_size = static_cast<size_t>(config_.batch_size);
  policy.statement_timeout = config_.statement_timeout;
  policy.backoff = {config_.min_backoff, 2.0, config_.max_backoff};
  policy.stopping = &cancelling_;
  policy.patience = TimeOf("patience", policy.patience);
  return policy;
}

void Runner::ApplyBatch(std::vector<Delivery> batch, BatchApplier* applier, PacedInbox* inbox) {
  Failpoint("before_apply");
  const auto begin = Clock::now();
  const std::vector<Disposition> dispositions = applier->Apply(batch, begin);
  inbox->Leave();
  WakeApplier();
  Failpoint("after_commit_before_ack");

  std::vector<uint64_t> settled;
  settled.reserve(batch.size());
  for (size_t i = 0; i < batch.size(); ++i) {
    if (dispositions[i].kind == Disposition::kSettled) settled.push_back(batch[i].message.handle);
  }
  if (!settled.empty()) subscriber_->Ack(std::move(settled));
  CountOutcomes(batch, dispositions);
  if (spdlog::should_log(spdlog::level::debug)) {
    LogApplied(batch, dispositions, Clock::now() - begin);
  }
  ReturnToQueues(dispositions, &batch);
}

void Runner::CountOutcomes(const std::vector<Delivery>& batch,
                           const std::vector<Disposition>& dispositions) {
  StatusNumbers numbers;
  bool settled = false;
  for (size_t i = 0; i < batch.size(); ++i) {
    if (dispositions[i].kind != Disposition::kSettled) continue;
    settled = true;
    const std::string& outcome = dispositions[i].outcome;
    if (outcome == "duplicate") {
      ++numbers.duplicates;
    } else if (outcome == "stale") {
      ++numbers.stale;
      // A redelivery is a duplicate. So this event came after a newer one of its key.
      if (!ordered_ || batch[i].message.ordering_key.empty()) continue;
      ++numbers.out_of_order;
      LogRepeated("an older version came after a newer one of its key",
                  EventFields(config_.name, batch[i]));
    } else if (outcome == "rejected") {
      ++numbers.dead_letters;
    } else {
      ++numbers.applied;
    }
  }
  if (settled) status_->Succeeded(numbers);
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
  const bool all_settled =
      std::all_of(dispositions.begin(), dispositions.end(),
                  [](const Disposition& each) { return each.kind == Disposition::kSettled; });
  if (all_settled) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto now = Clock::now();
    // Those of a key follow each other.
    std::string_view last;
    for (const Delivery& delivery : *batch) {
      const std::string_view key = delivery.message.ordering_key;
      if (key.empty() || key != last) queues_.Done(delivery.queue_key(), now);
      last = key;
    }
    return;
  }
  std::map<std::string, std::vector<size_t>> positions_of;  // by queue key
  for (size_t i = 0; i < batch->size(); ++i) positions_of[(*batch)[i].queue_key()].push_back(i);

  const std::lock_guard<std::mutex> lock(mutex_);
  const auto now = Clock::now();
  for (const auto& [queue_key, positions] : positions_of) {
    std::vector<Delivery> unsettled;
    const Disposition* first = nullptr;
    for (size_t i : positions) {
      if (dispositions[i].kind == Disposition::kSettled) continue;
      if (unsettled.empty()) first = &dispositions[i];
      unsettled.push_back(std::move((*batch)[i]));
    }
    if (unsettled.empty()) {
      queues_.Done(queue_key, now);
    } else {
      ReturnToQueue(queue_key, std::move(unsettled), *first, now);
    }
  }
}

void Runner::ReturnToQueue(const std::string& queue_key, std::vector<Delivery> unsettled,
                           const Disposition& first, Clock::time_point now) {
  if (first.kind == Disposition::kDeadLetter) {
    // The others of the key wait for it in the queue, which stays busy.
    DeadLetterTopic::Letter letter{.delivery = std::move(unsettled.front()),
                                   .failure = first.failure};
    unsettled.erase(unsettled.begin());
    queues_.PutBack(queue_key, std::move(unsettled));
    ++letters_;
    dead_letter_topic_.Send(std::move(letter));
  } else if (first.kind == Disposition::kAlone) {
    unsettled.front().suspect = true;
    if (first.failure.attempts > 0) unsettled.front().given_up = first.failure;
    queues_.PutBack(queue_key, std::move(unsettled));
    queues_.Done(queue_key, now);
  } else {
    queues_.Fail(queue_key, std::move(unsettled), now + first.delay);
  }
}

void Runner::OnDeadLetterResult(DeadLetterTopic::Letter letter) {
  using Letter = DeadLetterTopic::Letter;
  Fields fields = EventFields(config_.name, letter.delivery);
  fields.update({{"sqlstate", letter.failure.sqlstate},
                 {"error", letter.failure.error},
                 {"attempts", letter.failure.attempts}});
  const std::string queue_key = letter.delivery.queue_key();
  const auto now = Clock::now();
  if (letter.result == Letter::kPublished) {
    fields["outcome"] = "dead_letter_topic";
    LogRepeated("event published to the dead-letter topic", fields);
    subscriber_->Ack({letter.delivery.message.handle});
    attempts_.Forget(letter.delivery.message.message_id);
    status_->GaveUp();
  } else {
    fields["publish_error"] = letter.error;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    --letters_;
    if (letter.result == Letter::kPublished) {
      letter_backoff_.Reset();
      queues_.Done(queue_key, now);
    } else if (letter.result == Letter::kRefused) {
      Disposition record{.kind = Disposition::kAlone, .failure = std::move(letter.failure)};
      record.failure.error += " (refused by the dead-letter topic: " + letter.error + ")";
      std::vector<Delivery> event;
      event.push_back(std::move(letter.delivery));
      ReturnToQueue(queue_key, std::move(event), record, now);
    } else {
      const auto delay = letter_backoff_.Next();
      status_->Failed("dead-letter topic: " + letter.error, delay, now);
      fields["retry_after_ms"] = delay.count();
      LogRepeated("event could not be published to the dead-letter topic", fields);
      std::vector<Delivery> event;
      event.push_back(std::move(letter.delivery));
      queues_.Fail(queue_key, std::move(event), now + delay);
    }
  }
  changed_.notify_all();
}

void Runner::StopPulling() {
  if (subscriber_) subscriber_->StopPulling();
}

void Runner::AbortApplier(DatabaseInboxClient* inbox) const {
  if (const auto asked = inbox->asked()) {
    const auto waited =
        std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - asked->since);
    LogWarn("ended without the answer of a session of the server",
            {{"subscription", config_.name},
             {"backend", asked->backend},
             {"waited_seconds", waited.count()}});
  }
  inbox->Abort();
}

void Runner::StopAppliers(Clock::duration time) {
  cancelling_ = true;
  gate_.Stop();
  const auto abort_at = Clock::now() + time;
  std::unique_lock<std::mutex> lock(mutex_);
  // A batch whose statement is cancelled is rolled back, and nacked with the rest. A statement may
  // have begun just after it was to be cancelled.
  while (busy_ > 0 && Clock::now() < abort_at) {
    lock.unlock();
    for (Applier& applier : appliers_) applier.inbox->Cancel();
    lock.lock();
    changed_.wait_for(lock, time / 4, [this] { return busy_ == 0; });
  }
  // One that is not busy may wait for a connection, or for the answer to a report.
  const bool all =
      busy_ > 0 || !changed_.wait_until(lock, abort_at, [this] { return running_ == 0; });
  lock.unlock();
  if (all) {
    for (Applier& applier : appliers_) AbortApplier(applier.inbox.get());
  }
  for (Applier& applier : appliers_) applier.thread.join();
}

void Runner::EndBy(Clock::time_point end) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (end >= end_) return;
  end_ = end;
  closing_ = std::clamp<Clock::duration>((end - Clock::now()) / 2,
                                         TimeOf("closing_time", kLeastClosing), kMostClosing);
  apply_until_ = end - closing_;
  changed_.notify_all();
}

Runner::Clock::duration Runner::ApplyWhatIsHeld() {
  std::unique_lock<std::mutex> lock(mutex_);
  // EndBy may change the time meanwhile.
  const auto wait = [&](Clock::time_point most, auto done) {
    while (!done() && Clock::now() < std::min(most, apply_until_)) {
      changed_.wait_until(lock, std::min(most, apply_until_));
    }
  };
  // Suspended messages are not waited for; they are to be nacked anyway.
  wait(Clock::time_point::max(), [this] {
    // Without a connection nothing becomes less.
    return busy_ == 0 &&
           (connections_.open() == 0 || (queues_.ready() == 0 && !queues_.suspect_since()));
  });
  wait(Clock::now() + kLetterTimeout, [this] { return letters_ == 0; });
  stopping_ = true;
  changed_.notify_all();
  return closing_;
}

void Runner::Finish(Clock::time_point end) {
  if (finished_) return;
  finished_ = true;
  EndBy(end);
  StopPulling();
  const Clock::duration closing = ApplyWhatIsHeld();
  StopAppliers(closing * kCancelShare / 100);
  // What is on its way to the dead-letter topic is nacked with the rest.
  dead_letter_topic_.Stop();
  if (subscriber_) {
    subscriber_->GiveBack([this] {
      const std::lock_guard<std::mutex> lock(mutex_);
      return queues_.Drain();
    });
    subscriber_->Stop(
        std::chrono::duration_cast<std::chrono::milliseconds>(closing * kSettleShare / 100));
  }
  // Last, since it may wait for the database, and what was given back shall not.
  if (starts_again_) {
    report_left_ = !failed();
  } else {
    LastReport(closing * kReportShare / 100);
  }
  LogInfo("subscription stopped", {{"subscription", config_.name}});
}

}  // namespace postbox::puller
