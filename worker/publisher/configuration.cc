#include "worker/publisher/configuration.h"

#include "worker/publisher/base/limited_log.h"
#include "worker/publisher/base/passing_error.h"
#include "worker/publisher/base/registration.h"
#include "worker/publisher/base/transaction.h"
#include "worker/publisher/store/publication_state.h"

namespace postbox::publisher {
namespace {

using std::chrono::milliseconds;

// What has failed because something was in the way, a deadlock with DDL for example, is done again
// at first so soon, and then so.
constexpr milliseconds kReadAgain(100), kPatience(1000);
// How often a database with copied publications looks whether the original is still there.
constexpr milliseconds kLookForOriginal(2000);

}  // namespace

void Configuration::TryAllAgain() {
  read_again_ = true;
  next_read_ = 0;
  retry_all_ = true;
}

void Configuration::TryAgainWith(std::set<std::string> credentials) {
  retry_with_.merge(credentials);
  if (retry_with_.empty()) return;
  read_again_ = true;
  next_read_ = 0;
}

std::optional<Configuration::Contents> Configuration::Read(Moment now, const Outlets& outlets) {
  // The generation before the configuration: a change in between is seen next time.
  const uint64 generation = ConfigGeneration();
  Contents contents;
  try {
    InTransaction("postbox: reading publications", [&] {
      if (retry_all_) RetryAllNow();
      contents.publications = LoadPublications(&copies_);
      contents.choices = LoadCredentialChoices();
      retry_with_.merge(outlets.Changed(contents.choices));
      if (!retry_with_.empty()) RetryNow(retry_with_);
    });
  } catch (const PostgresError& error) {
    FailedToRead(now, error);
    return std::nullopt;
  }
  Pg([] { elog(DEBUG1, "postbox: publications were read"); });
  SetServing(true);
  failing_since_ = 0;
  next_look_ = After(now, kLookForOriginal);
  pause_ends_ = kNever;
  for (const Publication& publication : contents.publications) {
    if (publication.IsPaused()) pause_ends_ = std::min(pause_ends_, publication.paused_until);
  }
  read_again_ = false;
  retry_all_ = false;
  retry_with_.clear();
  generation_ = generation;
  ConfigLoaded(generation);
  return contents;
}

void Configuration::FailedToRead(Moment now, const PostgresError& error) {
  LeaveIfExtensionGone();
  next_read_ = After(now, kReadAgain);
  if (failing_since_ == 0) failing_since_ = now;
  if (IsPassing(error) && now < After(failing_since_, kPatience)) return;
  SetServing(false);
  next_read_ = After(now, kPatience);
  LogFailure("read the publications", error);
}

}  // namespace postbox::publisher
