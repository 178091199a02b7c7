#include "worker/pubsub/auth/token_source.h"

#include <pthread.h>

#include <system_error>
#include <utility>

#include "proto/rules/error_class.h"
#include "worker/pubsub/auth/credential_lookup.h"
#include "worker/pubsub/signal_block.h"

namespace postbox::pubsub {

namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr char kThreadName[] = "postbox-token";

}  // namespace

TokenSource::TokenSource(CredentialSpec spec, std::string audience, WallClock wall)
    : spec_(std::move(spec)), wall_(std::move(wall)), request_(&http_, std::move(audience)) {}

std::unique_ptr<TokenSource> TokenSource::Start(const CredentialSpec& spec,
                                                const std::string& audience,
                                                std::string* quota_project, std::string* error,
                                                WallClock wall) {
  HttpClient http;
  const std::optional<CredentialsFile> file =
      ReadCredentials(spec, &http, /*on_google_cloud=*/false, error);
  if (!file) return nullptr;
  *quota_project = file->quota_project;
  std::unique_ptr<TokenSource> source(new TokenSource(spec, audience, std::move(wall)));
  source->token_.SetCredentials(*file);
  return source->StartThread(error) ? std::move(source) : nullptr;
}

std::unique_ptr<TokenSource> TokenSource::StartUnchecked(const CredentialSpec& spec,
                                                         const std::string& audience,
                                                         std::string* error) {
  std::unique_ptr<TokenSource> source(
      new TokenSource(spec, audience, std::chrono::system_clock::now));
  return source->StartThread(error) ? std::move(source) : nullptr;
}

bool TokenSource::StartThread(std::string* error) {
  const ScopedSignalBlock block;
  try {
    thread_ = std::thread([this] { ThreadMain(); });
  } catch (const std::system_error&) {
    *error = "could not start a thread for access tokens";
    return false;
  }
  pthread_setname_np(thread_.native_handle(), kThreadName);
  return true;
}

TokenSource::~TokenSource() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  http_.Stop();
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void TokenSource::OnChange(std::function<void()> changed) {
  const std::lock_guard<std::mutex> lock(mutex_);
  on_change_ = std::move(changed);
}

Authorization TokenSource::GetLocked() {
  const bool was_wanted = token_.wanted();
  Authorization answer = token_.Get(SteadyClock::now(), wall_());
  if (token_.wanted() && !was_wanted) changed_.notify_all();
  return answer;
}

Authorization TokenSource::Get() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return GetLocked();
}

Authorization TokenSource::Wait(std::chrono::milliseconds limit) {
  const auto end = SteadyClock::now() + limit;
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    Authorization answer = GetLocked();
    if (!answer.header.empty() || answer.code != kOk) return answer;
    if (SteadyClock::now() >= end)
      return {.code = kUnavailable, .error = "no access token: no answer in time"};
    changed_.wait_until(lock, end);
  }
}

bool TokenSource::Reject(const std::string& header, const std::string& message) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!token_.Reject(header, message, SteadyClock::now())) return false;
  changed_.notify_all();
  return true;
}

void TokenSource::Accepted() {
  if (!token_.refused()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  token_.Accepted();
}

CredentialState TokenSource::State() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return token_.state();
}

void TokenSource::ThreadMain() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    const auto now = SteadyClock::now();
    if (token_.MustFetch(now, wall_())) {
      FetchOne(&lock);
    } else {
      changed_.wait_until(lock, token_.NextFetch(now));
    }
  }
}

void TokenSource::FetchOne(std::unique_lock<std::mutex>* lock) {
  // A metadata server that does not answer once is still there: its failure passes.
  const bool on_google_cloud = token_.state().kind == kMetadataServerKind;
  lock->unlock();
  TokenError error;
  std::optional<AccessToken> token;
  const std::optional<CredentialsFile> file =
      ReadCredentials(spec_, &http_, on_google_cloud, &error.text);
  if (file) token = request_.Fetch(*file, &error);
  lock->lock();
  if (file) token_.SetCredentials(*file);
  if (token) {
    token_.SetToken(*token, SteadyClock::now(), wall_());
  } else {
    token_.SetFailure(std::move(error), SteadyClock::now());
  }
  changed_.notify_all();
  if (on_change_) on_change_();
}

}  // namespace postbox::pubsub
