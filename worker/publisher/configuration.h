// The publications and credentials of the database: when they are read again, and what becomes of
// suspensions with that.
#ifndef POSTBOX_WORKER_PUBLISHER_CONFIGURATION_H_
#define POSTBOX_WORKER_PUBLISHER_CONFIGURATION_H_

#include "worker/publisher/base/registration.h"
#include "worker/publisher/delivery/outlet.h"
#include "worker/publisher/policy/moment.h"
#include "worker/publisher/store/publication.h"

namespace postbox::publisher {

class Configuration {
 public:
  // All is read again, and every suspended publication tried: what was wrong may be right now.
  void TryAllAgain();
  // The same for publications with these credentials.
  void TryAgainWith(std::set<std::string> credentials);

  // What was read may be another one by now. What lanes have read may not be stored then: perhaps
  // they passed what their publication takes now.
  bool IsOutdated() const { return ConfigGeneration() != generation_; }
  bool IsToBeRead(Moment now) const {
    return read_again_ || IsOutdated() || (copies_ && now >= next_look_) || now >= pause_ends_;
  }
  // When the first pause of a publication is over; kNever if none is, or not by itself.
  Moment pause_ends() const { return pause_ends_; }
  // It could not be read a moment ago.
  bool HasToWait(Moment now) const { return now < next_read_; }

  struct Contents {
    std::vector<Publication> publications;
    Outlets::Choices choices;
  };
  // Nothing if it fails. That is logged, and sessions are told that nothing is published, if it
  // lasts. `outlets`: the identities that are used.
  std::optional<Contents> Read(Moment now, const Outlets& outlets);

 private:
  void FailedToRead(Moment now, const PostgresError& error);

  uint64 generation_ = PG_UINT64_MAX;  // none was read yet
  bool read_again_ = true;
  bool retry_all_ = false;            // ends all suspensions with that
  std::set<std::string> retry_with_;  // or those of publications with these credentials
  bool copies_ = false;               // some publications belong to another database
  Moment next_look_ = 0;              // for that one: it may be dropped, which no message says
  Moment next_read_ = 0;
  Moment pause_ends_ = kNever;
  Moment failing_since_ = 0;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_CONFIGURATION_H_
