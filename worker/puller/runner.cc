#include "worker/puller/runner.h"

#include <utility>

#include "worker/puller/batch_outcomes.h"
#include "worker/puller/failpoint.h"
#include "worker/puller/log.h"
#include "worker/puller/process_spans.h"

namespace postbox::puller {
namespace {

// How long a thread with work may show no progress, beside statement_timeout: more than it takes to
// connect, or to wait for the end of a statement, its cancel and its ROLLBACK (database.h).
constexpr std::chrono::seconds kStuckTime{150};

}  // namespace

Runner::Runner(SubscriptionConfig config, std::string dsn, std::shared_ptr<PullStatus> status,
               ConnectionShares* shares, const std::string& paused)
    : config_(std::move(config)),
      dsn_(std::move(dsn)),
      status_(std::move(status)),
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
          config_, status_.get(),
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
          config_, {&queue_, &gate_, &attempts_, &health_, status_.get(), &reporter_},
          [this](const auto&... applied) { OnApplied(applied...); },
          [this](DeadLetterTopic::Letter letter) { dead_letter_topic_.Send(std::move(letter)); }) {}

Runner::~Runner() { Finish(Clock::now()); }

bool Runner::Start(std::string* error) {
  if (!parked_.paused_for().empty()) {
    LogWarn("subscription paused",
            {{"subscription", config_.name}, {"reason", parked_.paused_for()}});
    status_->SetStreamState(PullStatus::Stream::kPaused, parked_.paused_for(), Clock::now());
    appliers_.Start(dsn_);
    return true;
  }
  if (!stream_.Open(error)) return false;
  // Last, because they ack over the stream. Messages that have arrived already wait in the queue.
  appliers_.Start(dsn_);
  LogInfo("subscription started", {{"subscription", config_.name},
                                   {"pubsub_subscription", config_.subscription},
                                   {"inbox", config_.inbox_name},
                                   {"endpoint", config_.endpoint.address}});
  return true;
}

// How long ago the oldest of them was published, by the clock of this machine.
std::chrono::milliseconds Runner::AgeOfOldest(const std::vector<Delivery>& deliveries) {
  const auto now = std::chrono::system_clock::now();
  auto oldest = now;
  for (const Delivery& delivery : deliveries) {
    oldest = std::min(oldest, delivery.message.publish_time);
  }
  return std::chrono::duration_cast<std::chrono::milliseconds>(now - oldest);
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
  const auto age = AgeOfOldest(deliveries);
  queue_.Push(std::move(deliveries));
  status_->Received(messages.size(), age, Clock::now());
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

bool Runner::Stuck() {
  const auto limit = TimeOf("stuck_time", kStuckTime);
  if (parked_.paused_for().empty() && stream_.Silence() > limit) return true;
  // Without a limit for statements a long one looks like a thread that is stuck.
  if (config_.statement_timeout.count() == 0) return false;
  return appliers_.AnyStuckSince(Clock::now() - limit - config_.statement_timeout);
}

void Runner::Finish(Clock::time_point end) {
  if (finished_) return;
  finished_ = true;
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
