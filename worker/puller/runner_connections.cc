// The threads of the appliers, their connections, and the reports over them.
#include <algorithm>

#include "proto/rules/sqlstate_class.h"
#include "worker/puller/failpoint.h"
#include "worker/puller/log.h"
#include "worker/puller/runner.h"

namespace postbox::puller {
namespace {

// How late a report of an applier may be before the main thread takes it over.
constexpr std::chrono::milliseconds kLateReport{300};

}  // namespace

Runner::Clock::time_point Runner::NextBatch() const {
  auto next = Clock::time_point::max();
  if (auto since = queues_.ready_since()) {
    const bool full = queues_.ready() >= static_cast<size_t>(config_.batch_size);
    next = batch_timer_.Due(*since, full);
  }
  if (auto since = NextSuspect()) next = std::min(next, *since);
  return next;
}

Runner::Clock::time_point Runner::NextConnect(Clock::time_point now) {
  const auto work = NextBatch();
  const int open = connections_.open();
  // A connection that may not be used is of no use. One over which a report is stored may stay so.
  if (open > 0 && work <= now && !gate_.HasRoomBeside(open - reporting_, now)) {
    return gate_.NextOpening(now);
  }
  return connections_.NextOpen(work, free_ > 0, now);
}

Runner::Clock::time_point Runner::NextWork(const Session& session, Clock::time_point now) {
  auto next = now + std::chrono::minutes(1);
  if (auto retry_at = queues_.NextRetry(); retry_at && !giving_back_) {
    next = std::min(next, *retry_at);
  }
  if (!session.connected) {
    return next_to_connect_ == &session ? std::min(next, NextConnect(now)) : next;
  }
  auto work = NextBatch();
  if (work <= now && !gate_.Open(now)) work = gate_.NextOpening(now);
  return std::min({next, work, status_->NextReport(), connections_.NextLook()});
}

void Runner::Connect(Session* session, std::unique_lock<std::mutex>* lock) {
  lock->unlock();
  std::string error;
  session->connected = session->inbox->Connect(&error);
  lock->lock();
  const auto now = Clock::now();
  next_to_connect_ = nullptr;
  changed_.notify_all();
  if (session->connected) {
    connections_.Opened(now);
    return status_->Connected();
  }
  const auto delay = connections_.Refused(now);
  const bool only = connections_.open() == 0;
  if (only) status_->ConnectFailed(error, delay, now);
  LogRepeated(
      only ? "no connection to the database" : "no further connection to the database",
      {{"subscription", config_.name}, {"error", error}, {"retry_after_ms", delay.count()}});
}

void Runner::Disconnect(Session* session, std::unique_lock<std::mutex>* lock) {
  session->connected = false;
  connections_.Closed();
  lock->unlock();
  session->inbox->Disconnect();
  lock->lock();
}

void Runner::ApplierLoop(DatabaseInboxClient* inbox) {
  PacedInbox paced(config_.name, inbox, &gate_);
  BatchApplier applier(Policy(), &paced, &attempts_, status_.get());
  Session session{inbox};

  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    inbox->Progressed();
    const auto now = Clock::now();
    GiveBackSuspended(now);
    if (session.connected && !inbox->connected()) {
      session.connected = false;
      connections_.Closed();
      changed_.notify_all();
    }
    if (!session.connected && next_to_connect_ == nullptr) next_to_connect_ = &session;
    if (session.connected && connections_.MustClose(now)) {
      Disconnect(&session, &lock);
      continue;
    }
    const auto next = NextWork(session, now);
    if (next > now) {
      inbox->Waits();
      free_ += session.connected ? 1 : 0;
      changed_.wait_until(lock, next);
      free_ -= session.connected ? 1 : 0;
      continue;
    }
    if (!session.connected) {
      if (NextConnect(now) <= now && next_to_connect_ == &session) Connect(&session, &lock);
      continue;
    }
    if (status_->NextReport() <= now) {
      Report(inbox, &lock);
      continue;
    }
    if (connections_.NextLook() <= now) {
      if (connections_.TooMany(busy_, now)) Disconnect(&session, &lock);
      continue;
    }
    // What was due may have been a report, which the main thread has taken over since.
    if (NextBatch() > now || !gate_.Open(now)) continue;
    std::vector<Delivery> batch = TakeBatch(applier.limit(), &paced);
    const int suspects = !batch.empty() && batch.front().suspect ? 1 : 0;
    connections_.InUse(++busy_, now);
    suspects_ += suspects;
    lock.unlock();
    ApplyBatch(std::move(batch), &applier, &paced);
    lock.lock();
    --busy_;
    suspects_ -= suspects;
    changed_.notify_all();
  }
  if (next_to_connect_ == &session) next_to_connect_ = nullptr;
  --running_;
  changed_.notify_all();
}

StatusNumbers Runner::TakeStatus() {
  const auto now = Clock::now();
  StatusNumbers numbers = status_->Take(now);
  numbers.conflicts = gate_.conflicts(now);
  return numbers;
}

void Runner::Report(DatabaseInboxClient* inbox, std::unique_lock<std::mutex>* lock) {
  ++reporting_;
  lock->unlock();
  const StatusNumbers numbers = TakeStatus();
  const InboxResult stored = inbox->Report(config_.name, config_.appliers, &numbers);
  NoteReport(stored.ok, stored.sqlstate, stored.error);
  lock->lock();
  --reporting_;
}

std::optional<StatusNumbers> Runner::TakeLateReport() {
  const auto now = Clock::now();
  const auto due = status_->NextReport();
  if (due > now || now - due < kLateReport) return std::nullopt;
  return TakeStatus();
}

void Runner::Stored(const QueryResult& result) {
  NoteReport(result.ok(), result.sqlstate(), result.error());
}

void Runner::NoteReport(bool stored, const std::string& sqlstate, const std::string& error) {
  if (stored) return;
  status_->NotStored(sqlstate);
  if (IsTransientSqlstate(sqlstate)) return;
  LogRepeated("the status of the subscription is not shown in postbox.subscription_status",
              {{"subscription", config_.name}, {"sqlstate", sqlstate}, {"error", error}});
}

void Runner::LastReport(Clock::duration time) {
  const bool keep = failed();
  const StatusNumbers numbers = TakeStatus();
  const auto until = Clock::now() + time;
  for (Applier& applier : appliers_) {
    if (!applier.inbox->connected()) continue;
    applier.inbox->SetDeadline(until);
    const InboxResult stored =
        applier.inbox->Report(config_.name, config_.appliers, keep ? &numbers : nullptr);
    if (stored.ok) return;
  }
  report_left_ = !keep;
}

std::optional<Unanswered> Runner::LookForAnswers() {
  std::optional<Unanswered> oldest;
  for (Applier& applier : appliers_) {
    const std::optional<Unanswered> asked = applier.inbox->asked();
    if (asked && (!oldest || asked->since < oldest->since)) oldest = asked;
  }
  if (oldest && Clock::now() - oldest->since < TimeOf("unanswered_time", kUnansweredTime))
    oldest.reset();
  status_->NoAnswer(oldest);
  return oldest;
}

}  // namespace postbox::puller
