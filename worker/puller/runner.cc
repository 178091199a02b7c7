#include "worker/puller/runner.h"

#include <algorithm>
#include <utility>

#include "worker/puller/batch_outcomes.h"
#include "worker/puller/failpoint.h"
#include "worker/puller/log.h"
#include "worker/puller/process_spans.h"

namespace postbox::puller {

Runner::Runner(SubscriptionConfig config, std::string dsn, std::shared_ptr<PullStatus> status,
               std::shared_ptr<SubscriptionMetrics> metrics, ConnectionShares* shares,
               const std::string& paused)
    : config_(std::move(config)),
      status_(std::move(status)),
      metrics_(std::move(metrics)),
      parked_(
          config_.on_error == OnError::kParkKey ? std::optional(config_.most_parked) : std::nullopt,
          paused),
      gate_(config_.appliers),
      health_({.first_pause = config_.min_backoff,
               .doubt = TimeOf("doubt", ConsumerHealth::kDoubt),
               .evidence = TimeOf("evidence", ConsumerHealth::kEvidence)}),
      reporter_(config_.name, config_.appliers, status_.get(), &gate_, &health_, &queue_),
      queue_(config_, shares, &gate_, &health_, status_.get(), &parked_,
             [this] { stream_.GiveBack([this] { return TakeSuspended(); }); }),
      stream_(
          config_, status_.get(), metrics_.get(),
          [this](std::vector<pubsub::ReceivedMessage> messages) {
            OnMessages(std::move(messages));
          },
          [this] { queue_.Wake(); }),
      dead_letter_topic_(
          {.endpoint = config_.endpoint,
           .quota_project = config_.quota_project,
           .credential = config_.credential},
          config_.dead_letter_topic, config_.subscription,
          [this](DeadLetterTopic::Letter letter) { OnDeadLetterResult(std::move(letter)); }),
      appliers_(
          config_, std::move(dsn),
          {&queue_, &gate_, &attempts_, &health_, status_.get(), metrics_.get(), &reporter_},
          [this](const auto&... applied) { OnApplied(applied...); },
          [this](DeadLetterTopic::Letter letter) { dead_letter_topic_.Send(std::move(letter)); }) {}

Runner::~Runner() { Finish(Clock::now()); }

bool Runner::Start(std::string* error) {
  if (!parked_.paused_for().empty()) {
    LogWarn("subscription paused",
            {{"subscription", config_.name}, {"reason", parked_.paused_for()}});
    status_->SetStreamState(PullStatus::Stream::kPaused, parked_.paused_for(), Clock::now());
    StartAppliers();
    return true;
  }
  if (!stream_.Open(error)) return false;
  // Last, because they ack over the stream. Messages that have arrived already wait in the queue.
  StartAppliers();
  LogInfo("subscription started", {{"subscription", config_.name},
                                   {"pubsub_subscription", config_.subscription},
                                   {"inbox", config_.inbox_name},
                                   {"endpoint", config_.endpoint.address}});
  return true;
}

void Runner::StartAppliers() {
  appliers_.Start();
  metrics_->SetLook([this] { return Gauges(); });
}

void Runner::NoteReceived(const std::vector<Delivery>& deliveries) {
  auto [oldest, newest] = std::minmax_element(
      deliveries.begin(), deliveries.end(), [](const Delivery& one, const Delivery& other) {
        return one.message.publish_time < other.message.publish_time;
      });
  metrics_->Received(deliveries.size(), newest->message.publish_time);
  // By the clock of this machine.
  const auto now = std::chrono::system_clock::now();
  const auto age = now - std::min(now, oldest->message.publish_time);
  status_->Received(deliveries.size(), std::chrono::duration_cast<std::chrono::milliseconds>(age),
                    Clock::now());
}

void Runner::OnMessages(std::vector<pubsub::ReceivedMessage> messages) {
  std::vector<Delivery> deliveries;
  deliveries.reserve(messages.size());
  for (pubsub::ReceivedMessage& message : messages) {
    Delivery& delivery = deliveries.emplace_back();
    delivery.event = ParseEvent(message);
    delivery.message = std::move(message);
    if (delivery.event.version_left_alone) {
      LogRepeated("an event has no version: the member version of its JSON body is not a number",
                  EventFields(config_.name, delivery));
    }
    delivery.suspect = attempts_.Known(delivery.message.message_id);
  }
  NoteReceived(deliveries);
  queue_.Push(std::move(deliveries));
}

std::vector<uint64_t> Runner::TakeSuspended() {
  std::vector<uint64_t> handles = queue_.TakeSuspended();
  if (!handles.empty()) status_->Nacked(handles.size());
  return handles;
}

void Runner::OnApplied(const std::vector<Delivery>& batch,
                       const std::vector<Disposition>& dispositions, Clock::duration took) {
  if (config_.spans != nullptr) AddProcessSpans(config_, batch, dispositions, took);
  Failpoint("after_commit_before_ack");
  std::vector<uint64_t> settled = SettledHandles(batch, dispositions);
  if (!settled.empty()) {
    stream_.Ack(std::move(settled));
    const StatusNumbers numbers =
        CountOutcomes(config_.name, stream_.ordered(), batch, dispositions);
    status_->Succeeded(numbers, took, Clock::now());
    metrics_->Settled(numbers);
    parked_.Parked(numbers.parked, Clock::now());
  }
  LogApplied(config_.name, batch, dispositions, took);
}

void Runner::OnDeadLetterResult(DeadLetterTopic::Letter letter) {
  Fields fields = EventFields(config_.name, letter.delivery);
  fields.update({{"sqlstate", letter.failure.sqlstate},
                 {"error", letter.failure.error},
                 {"attempts", letter.failure.attempts}});
  if (letter.result == DeadLetterTopic::Letter::kPublished) {
    fields["outcome"] = "dead_letter_topic";
    LogRepeated("event published to the dead-letter topic", fields);
    stream_.Ack({letter.delivery.message.handle});
    attempts_.Forget(letter.delivery.message.message_id);
    status_->GaveUp();
    metrics_->Rejected();
  } else {
    fields["publish_error"] = letter.error;
  }
  if (const auto delay = queue_.LetterDone(std::move(letter))) {
    fields["retry_after_ms"] = delay->count();
    LogRepeated("event could not be published to the dead-letter topic", fields);
  }
}

std::optional<Unanswered> Runner::LookForAnswers() {
  std::optional<Unanswered> oldest = appliers_.OldestUnanswered();
  if (oldest && Clock::now() - oldest->since < TimeOf("unanswered_time", kUnansweredTime))
    oldest.reset();
  status_->NoAnswer(oldest);
  return oldest;
}

ThreadSigns Runner::Signs() {
  ThreadSigns signs{.letters_silence = dead_letter_topic_.Silence(),
                    .appliers = appliers_.Signs(),
                    .statement_timeout = config_.statement_timeout};
  if (parked_.paused_for().empty()) signs.stream_silence = stream_.Silence();
  return signs;
}

std::string Runner::NotReady() {
  if (!parked_.paused_for().empty()) return "";
  if (status_->stream() != PullStatus::Stream::kConnected) return "not connected to Pub/Sub";
  return queue_.Appliers().connections > 0 ? "" : "not connected to the database";
}

SubscriptionGauges Runner::Gauges() {
  WorkQueue::Holding held = queue_.Held();
  const WorkQueue::Crew crew = queue_.Appliers();
  const auto late = Clock::now() - TimeOf("unanswered_time", kUnansweredTime);
  int unanswered = 0;
  for (const ThreadSigns::Applier& applier : appliers_.Signs()) {
    if (applier.asked && applier.asked->since <= late) ++unanswered;
  }
  return {.stream = status_->stream(),
          .retrying = status_->retrying(),
          .in_hand = held.in_hand,
          .oldest = held.oldest,
          .waiting = std::move(held.waiting),
          .suspended_types = health_.Suspensions().size(),
          .connections = crew.connections,
          .busy = crew.busy,
          .idle = crew.idle,
          .unanswered = unanswered};
}

void Runner::Finish(Clock::time_point end) {
  if (finished_) return;
  finished_ = true;
  metrics_->SetLook(nullptr);
  EndBy(end);
  StopPulling();
  const EndTimes times = queue_.ApplyHeld();
  appliers_.Stop(times.cancel_time());
  // What is on its way to the dead-letter topic is nacked with the rest.
  dead_letter_topic_.Stop();
  stream_.GiveBack([this] { return queue_.Drain(); });
  stream_.Stop(times.settle_time());
  // Last, since it may wait for the database, and what was given back shall not.
  const bool failed = stream_.failed();
  if (starts_again_) {
    report_left_ = !failed;
  } else {
    // The report of a subscription that was refused stays, since it says why.
    const auto until = Clock::now() + times.report_time();
    report_left_ = !reporter_.ReportEnd(appliers_.Connected(), failed, until) && !failed;
  }
  LogInfo("subscription stopped", {{"subscription", config_.name}});
}

}  // namespace postbox::puller
