#include "worker/publisher/delivery/outlet.h"

#include "extension/shared/time_scale.h"
#include "worker/publisher/base/limited_log.h"
#include "worker/publisher/base/time_after.h"

namespace postbox::publisher {
namespace {

// What is on its way through a client that ends has so long, and so long when it is cancelled.
constexpr std::chrono::milliseconds kClientFinishTime(1000);
constexpr std::chrono::milliseconds kClientCancelTime(2000);
// To look for credentials may take a second or two, in which the worker does nothing else. So the
// next look comes when so many times that is over.
constexpr int kCredentialPauseFactor = 9;
// A synchronous standby that has not confirmed for so long is one to be named.
constexpr std::chrono::milliseconds kStall(1000);

void Append(Events events, Events* all) {
  for (EventPointer& event : events) all->push_back(std::move(event));
}

}  // namespace

void Outlet::Configure(const CredentialChoice& choice, TimestampTz now) {
  ClientConfig config = ClientConfig::Now(choice);
  if (config == config_) return;
  config_ = std::move(config);
  End(now);
}

bool Outlet::FollowFile(TimestampTz now) {
  if (!UsesCredentials()) return false;
  std::string stamp = pubsub::CredentialsStamp(config_.choice.spec);
  if (stamp == config_.credentials) return false;
  config_.credentials = std::move(stamp);
  LogLimited("credentials " + credential_,
             {.message = credential_.empty()
                             ? "the file of Google credentials has changed"
                             : "the file of credential \"" + credential_ + "\" has changed"});
  End(now);
  return true;
}

bool Outlet::EnsureClient(TimestampTz now) {
  if (IsEnding()) return false;
  if (client_ != nullptr) return true;
  if (now < try_at_) return false;
  config_ = ClientConfig::Now(config_.choice);
  error_.clear();
  const TimestampTz begin = GetCurrentTimestamp();
  client_ = config_.MakeClient(notify_fd_, &error_);
  if (client_ != nullptr) return true;
  const TimestampTz end = GetCurrentTimestamp();
  try_at_ = end + kCredentialPauseFactor * (end - begin);
  return false;
}

Events Outlet::TakeResults(TimestampTz now) {
  if (client_ == nullptr) return {};
  Events events = in_flight_.TakeResults(client_.get());
  if (!IsEnding()) return events;
  if (client_->outstanding() == 0 || now >= give_up_at_) {
    Append(Close(), &events);
  } else if (now >= cancel_at_ && !cancelled_) {
    cancelled_ = true;
    client_->Cancel();
  }
  return events;
}

void Outlet::End(TimestampTz now) {
  error_.clear();
  try_at_ = 0;
  if (client_ == nullptr || IsEnding()) return;
  in_flight_.StopHandOver();
  cancel_at_ = After(now, Scaled(kClientFinishTime).count());
  give_up_at_ = After(cancel_at_, Scaled(kClientCancelTime).count());
  cancelled_ = false;
}

TimestampTz Outlet::NextStep() const {
  if (!IsEnding()) return DT_NOEND;
  return cancelled_ ? give_up_at_ : cancel_at_;
}

void Outlet::Cancel() {
  if (client_ != nullptr) client_->Cancel();
}

Events Outlet::Close() {
  client_.reset();
  cancel_at_ = give_up_at_ = 0;
  // Nothing is sent any more, so what has no result can be given back.
  Events left = in_flight_.TakeAll();
  for (const EventPointer& event : left) event->status = pubsub::PublishStatus::kBehind;
  return left;
}

Outlet* Outlets::Of(const std::string& credential) const {
  for (const auto& outlet : outlets_) {
    if (outlet->credential() == credential) return outlet.get();
  }
  return nullptr;
}

std::set<std::string> Outlets::Changed(const Choices& choices) const {
  std::set<std::string> changed;
  for (const auto& [name, choice] : choices) {
    const Outlet* outlet = Of(name);
    if (outlet != nullptr && outlet->choice() != choice) changed.insert(name);
  }
  return changed;
}

void Outlets::Use(const Choices& choices, TimestampTz now) {
  used_.clear();
  for (const auto& [name, choice] : choices) {
    used_.insert(name);
    if (Outlet* outlet = Of(name); outlet != nullptr) {
      outlet->Configure(choice, now);
    } else {
      outlets_.push_back(std::make_unique<Outlet>(name, choice, notify_fd_));
    }
  }
  for (const auto& outlet : outlets_) {
    if (!used_.contains(outlet->credential())) outlet->End(now);
  }
}

void Outlets::FollowSettings(TimestampTz now) {
  for (const auto& outlet : outlets_) outlet->Configure(outlet->choice(), now);
}

std::set<std::string> Outlets::FollowFiles(TimestampTz now) {
  std::erase_if(outlets_, [&](const std::unique_ptr<Outlet>& outlet) {
    return !used_.contains(outlet->credential()) && !outlet->IsEnding();
  });
  std::set<std::string> changed;
  for (const auto& outlet : outlets_) {
    if (outlet->FollowFile(now)) changed.insert(outlet->credential());
  }
  return changed;
}

bool Outlets::UsesCredentials() const {
  return std::any_of(outlets_.begin(), outlets_.end(),
                     [](const auto& outlet) { return outlet->UsesCredentials(); });
}

void Outlets::HandOver(std::uint64_t confirmed) {
  for (const auto& outlet : outlets_) {
    if (outlet->client() != nullptr) outlet->in_flight()->HandOver(outlet->client(), confirmed);
  }
}

void Outlets::StopHandOver() {
  for (const auto& outlet : outlets_) outlet->in_flight()->StopHandOver();
}

std::size_t Outlets::outstanding() const {
  std::size_t count = 0;
  for (const auto& outlet : outlets_) count += outlet->outstanding();
  return count;
}

void Outlets::Cancel() {
  for (const auto& outlet : outlets_) outlet->Cancel();
}

Events Outlets::Close() {
  Events events;
  for (const auto& outlet : outlets_) Append(outlet->Close(), &events);
  return events;
}

void Outlets::StopClients() noexcept {
  for (const auto& outlet : outlets_) outlet->StopClient();
}

TimestampTz Outlets::NextStep() const {
  TimestampTz next = DT_NOEND;
  for (const auto& outlet : outlets_) next = std::min(next, outlet->NextStep());
  return next;
}

std::string Outlets::error() const {
  std::string first;
  for (const auto& outlet : outlets_) {
    if (!used_.contains(outlet->credential())) continue;
    if (outlet->error().empty()) return "";
    if (first.empty()) first = outlet->error();
  }
  return first;
}

bool Outlets::Stalled(TimestampTz now) const {
  return std::any_of(outlets_.begin(), outlets_.end(), [now](const auto& outlet) {
    return outlet->in_flight()->standby_queue().Stalled(now, Scaled(kStall).count() * 1000);
  });
}

std::vector<StandbyQueue::Waiting> Outlets::WaitingForStandbys() const {
  std::vector<StandbyQueue::Waiting> all;
  for (const auto& outlet : outlets_) {
    const auto waiting = outlet->in_flight()->standby_queue().Overview();
    all.insert(all.end(), waiting.begin(), waiting.end());
  }
  return all;
}

TimestampTz Outlets::NextLook(TimestampTz now) const {
  TimestampTz next = DT_NOEND;
  for (const auto& outlet : outlets_) {
    next = std::min(next, outlet->in_flight()->standby_queue().NextLook(now));
  }
  return next;
}

Events Outlets::TakeUnsafe(TimestampTz now, int64 most) {
  Events events;
  for (const auto& outlet : outlets_) {
    Append(outlet->in_flight()->TakeUnsafe(now, most), &events);
  }
  return events;
}

}  // namespace postbox::publisher
