// One identity of a worker at Pub/Sub: the client that has it, and the events on their way through
// that client. Publications with different identities share nothing but the budget.
//
//   Configure()    another identity, or other settings: the client ends, and the next one is made
//                  of the new ones. Others go on meanwhile.
//   EnsureClient() makes a client when there is something to publish
//   TakeResults()  what has a result. While the client ends (IsEnding), these say nothing of the
//                  topic, since the identity is not used any more.
//
// A client ends in steps, so that no lane waits for it: nothing is handed over any more; what is on
// its way has kClientFinishTime for its results, and is cancelled then; at the end what has no
// result is given back. No event is handed to the next client before: so the order of a key is
// kept.
#ifndef POSTBOX_WORKER_PUBLISHER_DELIVERY_OUTLET_H_
#define POSTBOX_WORKER_PUBLISHER_DELIVERY_OUTLET_H_

#include <map>
#include <set>

#include "extension/base/guard.h"
#include "worker/publisher/delivery/client_config.h"
#include "worker/publisher/delivery/in_flight.h"

namespace postbox::publisher {

class Outlet {
 public:
  // `credential`: its name; empty for the identity of the server's environment.
  Outlet(std::string credential, const CredentialChoice& choice, int notify_fd)
      : credential_(std::move(credential)),
        notify_fd_(notify_fd),
        config_(ClientConfig::Now(choice)) {}

  const std::string& credential() const { return credential_; }
  const CredentialChoice& choice() const { return config_.choice; }
  // Whether the endpoint asks who it is.
  bool UsesCredentials() const { return !config_.credentials.empty(); }
  // Null if there is none, or it ends.
  pubsub::Publisher* client() const { return IsEnding() ? nullptr : client_.get(); }
  // Why there is no client; empty if there is one, or none was tried.
  const std::string& error() const { return error_; }
  InFlight* in_flight() { return &in_flight_; }

  void Configure(const CredentialChoice& choice, TimestampTz now);
  // Whether the content of its file is another one, or cannot be read any more. The client ends
  // then.
  bool FollowFile(TimestampTz now);

  // False if there can be none now: it ends, or error() says why. What fails slowly is not tried
  // each time.
  bool EnsureClient(TimestampTz now);

  Events TakeResults(TimestampTz now);
  std::size_t outstanding() const { return client_ == nullptr ? 0 : client_->outstanding(); }

  // It is not used any more, or the client is to be another one.
  void End(TimestampTz now);
  bool IsEnding() const { return cancel_at_ != 0; }
  TimestampTz NextStep() const;

  // For a worker that leaves, without steps.
  void Cancel();
  Events Close();
  void StopClient() noexcept { client_.reset(); }

 private:
  const std::string credential_;
  const int notify_fd_;
  ClientConfig config_;
  std::unique_ptr<pubsub::Publisher> client_;
  InFlight in_flight_;
  std::string error_;
  TimestampTz try_at_ = 0;     // not before that
  TimestampTz cancel_at_ = 0;  // 0: it does not end
  TimestampTz give_up_at_ = 0;
  bool cancelled_ = false;
};

// All of a worker.
class Outlets {
 public:
  using Choices = std::map<std::string, CredentialChoice>;

  explicit Outlets(int notify_fd) : notify_fd_(notify_fd) {}

  auto begin() const { return outlets_.begin(); }
  auto end() const { return outlets_.end(); }
  // Null if no publication uses it.
  Outlet* Of(const std::string& credential) const;

  // Those that are in use, but have another identity now.
  std::set<std::string> Changed(const Choices& choices) const;
  // What is in use from now on.
  void Use(const Choices& choices, TimestampTz now);
  // The settings have changed.
  void FollowSettings(TimestampTz now);
  // Those whose file has changed. What is not used any more, and has ended, is forgotten.
  std::set<std::string> FollowFiles(TimestampTz now);

  // Whether the endpoint asks any of them who it is.
  bool UsesCredentials() const;

  void HandOver(std::uint64_t confirmed);
  void StopHandOver();
  std::size_t outstanding() const;
  void Cancel();
  Events Close();
  void StopClients() noexcept;
  // When one that ends has its next step.
  TimestampTz NextStep() const;
  // Why none of those that are in use has a client; empty if one has, or may have. What is wrong
  // with one identity alone is a matter of its publications.
  std::string error() const;

  // Of their queues for synchronous standbys.
  bool Stalled(TimestampTz now) const;
  std::vector<StandbyQueue::Waiting> WaitingForStandbys() const;
  TimestampTz NextLook(TimestampTz now) const;
  Events TakeUnsafe(TimestampTz now, int64 most);

 private:
  const int notify_fd_;
  std::vector<std::unique_ptr<Outlet>> outlets_;
  std::set<std::string> used_;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_DELIVERY_OUTLET_H_
