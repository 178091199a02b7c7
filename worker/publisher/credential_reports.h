// Tells what the clients of this worker know of their identities: postbox.credential_state, which
// postbox.credential_status shows. No secret is in it.
//
// A row is written when it changes, at most once a second. An endpoint that asks no client for an
// identity has no rows. If the server does not let the worker write, that is logged and tried again
// later: it holds up nothing.
#ifndef POSTBOX_WORKER_PUBLISHER_CREDENTIAL_REPORTS_H_
#define POSTBOX_WORKER_PUBLISHER_CREDENTIAL_REPORTS_H_

#include <map>
#include <optional>

#include "worker/publisher/delivery/outlet.h"

namespace postbox::publisher {

class CredentialReports {
 public:
  // To be called each time that the worker comes round.
  void Look(const Outlets& outlets, TimestampTz now);

 private:
  struct Report {
    std::string identity;
    TimestampTz valid_until = 0;  // 0: it is not known, or does not end
    std::string last_error;
    TimestampTz since = 0;
  };
  using Reports = std::map<std::string, Report>;  // by the name of the credential

  static std::optional<Report> ReportOf(const Outlet& outlet);
  // Whether it need not be written, since it says what is shown.
  static bool IsSame(const Report& report, const Report& shown, TimestampTz now);
  static void Write(const Reports& reports);

  std::optional<Reports> written_;  // nothing: what an earlier worker has written may be there
  TimestampTz next_look_ = 0;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_CREDENTIAL_REPORTS_H_
