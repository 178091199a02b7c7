#include "worker/puller/applier_pool.h"

#include <algorithm>
#include <utility>

#include "worker/puller/failpoint.h"
#include "worker/puller/log.h"

namespace postbox::puller {

void ApplierPool::Start() {
  for (int i = 0; i < config_.appliers; ++i) {
    Applier applier;
    applier.inbox = std::make_unique<DatabaseInboxClient>(
        dsn_, "postbox pull " + config_.name, config_.inbox, config_.event_type,
        TransactionLimits{.statement_timeout = config_.statement_timeout,
                          .lock_timeout = config_.lock_timeout});
    shared_.queue->Join();
    applier.thread = std::thread([this, inbox = applier.inbox.get()] { Run(inbox); });
    appliers_.push_back(std::move(applier));
  }
}

ApplyPolicy ApplierPool::Policy() const {
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

void ApplierPool::Run(DatabaseInboxClient* inbox) {
  PacedInbox paced(config_.name, inbox, shared_.gate,
                   [inbox](bool waits) { waits ? inbox->Waits() : inbox->Progressed(); });
  MeteredInbox metered(&paced, shared_.metrics);
  BatchApplier applier(Policy(), &metered, shared_.attempts, shared_.health, shared_.status);
  WorkQueue::Applier self{inbox, &paced};

  while (auto task = shared_.queue->Next(&self, applier.limit())) {
    switch (task->step) {
      case WorkQueue::Step::kConnect: {
        std::string error;
        const bool connected = inbox->Connect(&error);
        shared_.queue->ConnectDone(&self, connected, error);
        break;
      }
      case WorkQueue::Step::kDisconnect:
        inbox->Disconnect();
        break;
      case WorkQueue::Step::kReport:
        shared_.reporter->Report(inbox);
        shared_.queue->ReportDone(self);
        break;
      case WorkQueue::Step::kApply:
        Apply(std::move(task->batch), &applier, &metered, self);
        break;
      case WorkQueue::Step::kRetryParked:
        RetryParked(self, task->count);
        break;
      case WorkQueue::Step::kWait:
        break;
    }
  }
}

void ApplierPool::Apply(std::vector<Delivery> batch, BatchApplier* applier, MeteredInbox* metered,
                        const WorkQueue::Applier& self) {
  Failpoint("before_apply");
  const auto begin = Clock::now();
  metered->Taken(begin);
  const std::vector<Disposition> dispositions = applier->Apply(batch, begin);
  self.paced->Leave();
  shared_.queue->Wake();
  on_applied_(batch, dispositions, Clock::now() - begin);
  for (auto& letter : shared_.queue->Applied(self, dispositions, &batch)) {
    on_letter_(std::move(letter));
  }
}

void ApplierPool::RetryParked(const WorkQueue::Applier& self, bool count) {
  const auto begin = Clock::now();
  const ParkedStep step = self.inbox->RetryParked(count);
  Fields fields{{"subscription", config_.name}};
  if (step.key) fields["aggregate_id"] = *step.key;
  if (!step.error.empty()) fields.update({{"sqlstate", step.sqlstate}, {"error", step.error}});
  if (!step.ok) {
    LogRepeated("parked keys could not be retried", fields);
  } else if (step.key) {
    fields.update({{"applied", step.applied}, {"without_effect", step.without_effect}});
    LogRepeated(step.error.empty() ? "events of a parked key applied" : "parked key failed again",
                fields);
    const auto end = Clock::now();
    if (step.applied > 0) {
      const StatusNumbers numbers{.applied = step.applied};
      shared_.status->Succeeded(numbers, end - begin, end);
      shared_.metrics->Settled(numbers);
    }
  }
  shared_.queue->RetryDone(self, step);
}

void ApplierPool::Abort(DatabaseInboxClient* inbox) const {
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

void ApplierPool::Stop(Clock::duration time) {
  cancelling_ = true;
  shared_.gate->Stop();
  const auto abort_at = Clock::now() + time;
  // A batch whose statement is cancelled is rolled back, and nacked with the rest. A statement may
  // have begun just after it was to be cancelled.
  bool idle = shared_.queue->AwaitNoneBusy(Clock::now());
  while (!idle && Clock::now() < abort_at) {
    for (Applier& applier : appliers_) applier.inbox->Cancel();
    idle = shared_.queue->AwaitNoneBusy(Clock::now() + time / 4);
  }
  // One that is not busy may wait for a connection, or for the answer to a report.
  if (!idle || !shared_.queue->AwaitAllLeft(abort_at)) {
    for (Applier& applier : appliers_) Abort(applier.inbox.get());
  }
  for (Applier& applier : appliers_) applier.thread.join();
}

std::optional<Unanswered> ApplierPool::OldestUnanswered() const {
  std::optional<Unanswered> oldest;
  for (const Applier& applier : appliers_) {
    const std::optional<Unanswered> asked = applier.inbox->asked();
    if (asked && (!oldest || asked->since < oldest->since)) oldest = asked;
  }
  return oldest;
}

std::vector<ThreadSigns::Applier> ApplierPool::Signs() const {
  std::vector<ThreadSigns::Applier> signs;
  for (const Applier& applier : appliers_) {
    // In this order: an answer that comes meanwhile is progress, and seen as such.
    const std::optional<Unanswered> asked = applier.inbox->asked();
    signs.push_back({applier.inbox->progressed_at(), asked});
  }
  return signs;
}

std::vector<DatabaseInboxClient*> ApplierPool::Connected() const {
  std::vector<DatabaseInboxClient*> connected;
  for (const Applier& applier : appliers_) {
    if (applier.inbox->connected()) connected.push_back(applier.inbox.get());
  }
  return connected;
}

}  // namespace postbox::puller
