#include "worker/puller/applier_schedule.h"

#include <algorithm>

namespace postbox::puller {
namespace {

// An applier looks after that time at the latest.
constexpr std::chrono::minutes kLongestWait{1};

}  // namespace

void ApplierSchedule::Leave(const Session& session) {
  if (next_to_connect_ == &session) next_to_connect_ = nullptr;
  --running_;
}

void ApplierSchedule::Lost(Session* session) {
  session->connected = false;
  connections_.Closed();
}

ApplierSchedule::TimePoint ApplierSchedule::NextConnect(TimePoint work, TimePoint now) {
  const int open = connections_.open();
  // A connection that may not be used is of no use. One over which a report is stored, or a parked
  // key is retried, may stay so.
  if (open > 0 && work <= now && !gate_->HasRoomBeside(open - reporting_ - retrying_, now)) {
    return gate_->NextOpening(now);
  }
  return connections_.NextOpen(work, free_ > 0, now);
}

ApplierSchedule::Plan ApplierSchedule::Next(Session* session, const Due& due, TimePoint now) {
  const auto latest = std::min<TimePoint>(now + kLongestWait, due.give_back);
  if (!session->connected) {
    if (next_to_connect_ == nullptr) next_to_connect_ = session;
    if (next_to_connect_ != session) return {Step::kWait, latest};
    const auto connect = NextConnect(std::min(due.batch, due.parked), now);
    if (connect <= now) return {Step::kConnect};
    return {Step::kWait, std::min(latest, connect)};
  }
  if (connections_.MustClose(now)) {
    Lost(session);
    return {Step::kDisconnect};
  }
  auto work = due.batch;
  if (work <= now && !gate_->Open(now)) work = gate_->NextOpening(now);
  if (due.report <= now) {
    ++reporting_;
    return {Step::kReport};
  }
  if (connections_.NextLook() <= now && connections_.TooMany(busy_, now)) {
    Lost(session);
    return {Step::kDisconnect};
  }
  const bool retry = due.parked <= now && (parked_first_ || work > now);
  if (retry || work <= now) {
    connections_.InUse(++busy_, now);
    parked_first_ = !retry;
    if (retry) ++retrying_;
    return {retry ? Step::kRetryParked : Step::kApply};
  }
  ++free_;
  return {Step::kWait, std::min({latest, work, due.report, due.parked, connections_.NextLook()})};
}

void ApplierSchedule::Done(const Session& session, Step step) {
  if (step == Step::kWait && session.connected) --free_;
  if (step == Step::kReport) --reporting_;
  if (step == Step::kApply || step == Step::kRetryParked) --busy_;
  if (step == Step::kRetryParked) --retrying_;
}

std::optional<std::chrono::milliseconds> ApplierSchedule::ConnectDone(Session* session,
                                                                      bool connected,
                                                                      TimePoint now) {
  session->connected = connected;
  next_to_connect_ = nullptr;
  if (!connected) return connections_.Refused(now);
  connections_.Opened(now);
  return std::nullopt;
}

}  // namespace postbox::puller
