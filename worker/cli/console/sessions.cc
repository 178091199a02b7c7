#include "worker/cli/console/sessions.h"

#include <algorithm>
#include <utility>

#include "worker/cli/console/secret.h"

namespace postbox::cli {

bool Sessions::HasRoom(Clock::time_point now) { return EndOld(now) < limits_.most; }

std::optional<std::string> Sessions::Begin(std::shared_ptr<Session> session,
                                           Clock::time_point now) {
  std::string token = RandomSecret();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (EndOldLocked(now) >= limits_.most) return std::nullopt;
  const auto of_role = std::count_if(sessions_.begin(), sessions_.end(), [&](const auto& one) {
    return one.second.session->role() == session->role();
  });
  if (static_cast<std::size_t>(of_role) >= limits_.most_of_role) return std::nullopt;
  sessions_.emplace(Digest(token), Entry{std::move(session), now, now});
  return token;
}

std::shared_ptr<Session> Sessions::Find(const std::string& token, Clock::time_point now) {
  const std::string digest = Digest(token);
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = sessions_.find(digest);
  if (found == sessions_.end()) return nullptr;
  if (IsOver(found->second, now)) {
    sessions_.erase(found);
    return nullptr;
  }
  found->second.used = now;
  return found->second.session;
}

void Sessions::End(const std::string& token) {
  const std::string digest = Digest(token);
  const std::lock_guard<std::mutex> lock(mutex_);
  sessions_.erase(digest);
}

std::size_t Sessions::EndOld(Clock::time_point now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return EndOldLocked(now);
}

std::size_t Sessions::EndOldLocked(Clock::time_point now) {
  std::erase_if(sessions_, [&](const auto& one) { return IsOver(one.second, now); });
  return sessions_.size();
}

bool Sessions::IsOver(const Entry& entry, Clock::time_point now) const {
  return entry.session->over() || now - entry.used >= limits_.idle ||
         now - entry.begun >= limits_.longest;
}

}  // namespace postbox::cli
