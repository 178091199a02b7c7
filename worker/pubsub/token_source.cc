#include "worker/pubsub/token_source.h"

#include <pthread.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "proto/rules/error_class.h"
#include "worker/pubsub/signal_block.h"

namespace postbox::pubsub {

namespace {

constexpr std::size_t kMostIdentity = 300;
constexpr char kThreadName[] = "postbox-token";
// A caller that waits for a token that is no longer fetched looks again after this time.
constexpr std::chrono::seconds kIdle{3600};

// For a state that is shown: in one line, and cut.
std::string Shortened(std::string text) {
  text = text.substr(0, kMostIdentity);
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c >= 0x7F; }, '?');
  return text;
}

std::string IdentityOf(const CredentialsFile& file) {
  if (const auto* key = std::get_if<ServiceAccountKey>(&file.identity)) return key->email;
  if (const auto* user = std::get_if<AuthorizedUser>(&file.identity)) return user->account;
  if (const auto* account = std::get_if<ExternalAccount>(&file.identity)) {
    return account->impersonation ? account->impersonation->account() : account->audience;
  }
  if (const auto* account = std::get_if<ImpersonatedAccount>(&file.identity)) {
    return account->impersonation.account();
  }
  return "";
}

// Why there are none where no file is named. Services are often started without HOME.
std::string WithoutNamedFile(const std::string& path, const std::string& problem) {
  std::string text = std::string("no usable Google credentials: ") + kCredentialsVariable;
  if (path.empty()) {
    text += " and HOME are not set";
  } else {
    text += " is not set, \"" + path + "\" " + problem;
  }
  return text + ", and there is no metadata server of Google Cloud; set " + kCredentialsVariable +
         " to a file of credentials, in the environment of this process";
}

// Google's application default credentials. If `on_google_cloud`, it is known that there is a
// metadata server.
std::optional<CredentialsFile> ReadDefaultCredentials(HttpClient* http, bool on_google_cloud,
                                                      std::string* error) {
  bool named = false;
  const std::string path = CredentialsPath(&named);
  std::string problem;
  std::optional<CredentialsFile> file = ReadCredentialsFile(path, &problem);
  if (file) return file;
  if (named) {
    // Another identity than the one that was meant would be worse than none.
    *error = "the file \"" + path + "\" named by " + kCredentialsVariable + " " + problem;
    return std::nullopt;
  }
  std::error_code unreachable;
  if (std::filesystem::exists(path, unreachable)) {
    // So would be that of the machine while the file is written.
    *error = "the file \"" + path + "\" " + problem;
    return std::nullopt;
  }
  if (on_google_cloud || FindsMetadataServer(http)) {
    return CredentialsFile{kMetadataServerKind, "", MetadataServer()};
  }
  *error = WithoutNamedFile(path, problem);
  return std::nullopt;
}

// The credentials of a specification, as they are now. On failure returns nothing, and puts one
// sentence into `error`. May ask whether there is a metadata server.
std::optional<CredentialsFile> ReadCredentials(const CredentialSpec& spec, HttpClient* http,
                                               bool on_google_cloud, std::string* error) {
  if (spec.metadata_server) return CredentialsFile{kMetadataServerKind, "", MetadataServer()};
  std::string problem;
  if (!spec.json.empty()) {
    std::optional<CredentialsFile> file = ParseCredentials(spec.json, &problem);
    if (!file) *error = "the credential " + problem;
    return file;
  }
  if (spec.file.empty()) return ReadDefaultCredentials(http, on_google_cloud, error);
  std::optional<CredentialsFile> file = ReadCredentialsFile(spec.file, &problem);
  if (!file) *error = "the file \"" + spec.file + "\" of the credential " + problem;
  return file;
}

}  // namespace

TokenSource::TokenSource(CredentialSpec spec, std::string audience, WallClock wall)
    : spec_(std::move(spec)), wall_(std::move(wall)), request_(&http_, std::move(audience)) {}

void TokenSource::Note(const CredentialsFile& file) {
  state_.kind = file.type;
  state_.identity = Shortened(IdentityOf(file));
  quota_project_ = file.quota_project;
}

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
  source->Note(*file);
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

bool TokenSource::WantsToken(SteadyClock::time_point now) const {
  return wanted_ && now >= next_try_ && (header_.empty() || wall_() >= replace_at_);
}

Authorization TokenSource::GetLocked(SteadyClock::time_point now) {
  if (!header_.empty() && wall_() >= *state_.valid_until) header_.clear();
  if (!wanted_ && (header_.empty() || wall_() >= replace_at_)) {
    wanted_ = true;
    changed_.notify_all();
  }
  if (!header_.empty()) return {.header = header_, .quota_project = quota_project_};
  if (!failure_ || now >= next_try_) return {};
  return {.code = failure_->passes ? kUnavailable : kUnauthenticated,
          .error = "no access token: " + failure_->text};
}

Authorization TokenSource::Get() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return GetLocked(SteadyClock::now());
}

Authorization TokenSource::Wait(std::chrono::milliseconds limit) {
  const auto end = SteadyClock::now() + limit;
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    const auto now = SteadyClock::now();
    Authorization answer = GetLocked(now);
    if (!answer.header.empty() || answer.code != kOk) return answer;
    if (now >= end) return {.code = kUnavailable, .error = "no access token: no answer in time"};
    changed_.wait_until(lock, end);
  }
}

bool TokenSource::Reject(const std::string& header, const std::string& message) {
  const auto now = SteadyClock::now();
  const std::lock_guard<std::mutex> lock(mutex_);
  // Another token has taken its place, or is on its way.
  if (header != header_) return true;
  refused_ = true;
  state_.last_error = Shortened(message);
  if (rejected_at_ != SteadyClock::time_point() && now < rejected_at_ + kRejectInterval) {
    return false;
  }
  rejected_at_ = now;
  header_.clear();
  state_.valid_until.reset();
  failure_.reset();
  next_try_ = now;
  wanted_ = true;
  changed_.notify_all();
  return true;
}

void TokenSource::Accepted() {
  if (!refused_) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  refused_ = false;
  if (!failure_) state_.last_error.clear();
}

CredentialState TokenSource::State() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return state_;
}

void TokenSource::ThreadMain() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    const auto now = SteadyClock::now();
    if (WantsToken(now)) {
      FetchOne(&lock);
      continue;
    }
    // It was wanted in a margin that the clock has left again: the next caller says so.
    if (now >= next_try_) wanted_ = false;
    changed_.wait_until(lock, wanted_ ? next_try_ : now + kIdle);
  }
}

void TokenSource::FetchOne(std::unique_lock<std::mutex>* lock) {
  // A metadata server that does not answer once is still there: its failure passes.
  const bool on_google_cloud = state_.kind == kMetadataServerKind;
  lock->unlock();
  TokenError error;
  std::optional<AccessToken> token;
  const std::optional<CredentialsFile> file =
      ReadCredentials(spec_, &http_, on_google_cloud, &error.text);
  if (file) token = request_.Fetch(*file, &error);
  lock->lock();
  if (file) Note(*file);
  if (token) {
    const auto now = wall_();
    header_ = "Bearer " + token->token;
    state_.valid_until = token->expires;
    if (!token->identity.empty()) state_.identity = Shortened(token->identity);
    if (!refused_) state_.last_error.clear();
    replace_at_ = token->expires - std::min<std::chrono::system_clock::duration>(
                                       kLongestMargin, (token->expires - now) / 10);
    failure_.reset();
    backoff_.Reset();
    next_try_ = SteadyClock::now();
    wanted_ = false;
  } else {
    state_.last_error = Shortened(error.text);
    failure_ = std::move(error);
    next_try_ = SteadyClock::now() + backoff_.Next();
    wanted_ = false;  // until the next request for one
  }
  changed_.notify_all();
  if (on_change_) on_change_();
}

}  // namespace postbox::pubsub
