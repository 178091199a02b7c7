// pause_X(name, reason, until) and resume_X(name): the state of a pause is three columns of the
// registry, so a dump has it. A pause is over when paused_until has passed by the clock of the
// database; infinity is a pause until it is resumed, and NULL means that there was none. What reads
// the registry asks for paused_until > now(), and stops what is paused.
//
// For the owner of the outbox or the inbox, the role that created a backfill, and for operators:
// they see why something goes wrong, and a pause loses nothing.
//
// What stops, and where its events wait:
//   publication         its lanes finish what is in flight, and none is made (worker/publisher/
//                       configuration.h); in the outbox
//   subscription        postbox pull closes its stream (worker/puller/pull.cc); at Pub/Sub
//   projection, handler events of its types raise an error (extension/apply/routes.h); in the
//                       puller and at Pub/Sub
//   backfill            the session that runs it waits between two chunks (extension/emit/
//                       run_backfill.cc)
#include "extension/base/arguments.h"
#include "extension/base/library_version.h"
#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/lifecycle/wakeup.h"
#include "extension/registry/inbox_registration.h"
#include "extension/registry/outbox_facts.h"
#include "extension/registry/registered_names.h"
#include "extension/trust/act_as.h"
#include "extension/trust/operator_role.h"
#include "extension/trust/registrar.h"

namespace postbox {
namespace {

// The reason is shown in logs and views, so it is bounded.
constexpr size_t kLongestReason = 500;

void RefuseFor(Oid role) {
  Throw(ERRCODE_INSUFFICIENT_PRIVILEGE,
        "permission denied for a backfill of role \"" + RoleName(role) + "\"", "",
        "Use a role that has its rights, or a member of postbox_operator.");
}

// What can be paused: its registry, what the owner of it owns, or the owner itself, which roles
// may, and the error for others.
struct Pausable {
  const char* table;
  const char* parent;
  bool (*allowed)(Oid parent, Oid role);
  void (*refuse)(Oid parent);
  const char* ended = "false";  // SQL: nothing is left to be paused
};
void RefuseOutbox(Oid outbox) { ReadOwnedOutbox(outbox); }

constexpr Pausable kPublication = {"publication", "outbox", MayActOn, RefuseOutbox};
constexpr Pausable kSubscription = {"subscription", "inbox", MayActOn, RequireInboxOwner};
constexpr Pausable kProjection = {"projection", "inbox", MayActOn, RequireInboxOwner};
constexpr Pausable kHandler = {"handler", "inbox", MayActOn, RequireInboxOwner};
constexpr Pausable kBackfill = {"backfill", "owner", MayActFor, RefuseFor, "state <> 'active'"};

void RequireRightToPause(const Pausable& pausable, const std::string& name) {
  Parameters key;
  key.AddText(name);
  const std::string table(pausable.table);
  if (Run("SELECT " + std::string(pausable.parent) + "::oid, " + pausable.ended + " FROM postbox." +
              table + " WHERE name = $1",
          key) == 0) {
    ThrowUnknownName(pausable.table, name);
  }
  const Oid parent = OidColumn(0, 1);
  const bool has_ended = BoolColumn(0, 2);
  if (!pausable.allowed(parent, GetUserId())) pausable.refuse(parent);
  if (!has_ended) return;
  Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, table + " \"" + name + "\" has ended");
}

void Pause(const Pausable& pausable, FunctionCallInfo fcinfo) {
  const std::string name = TextArgument(fcinfo, 0, "name");
  const std::string reason = TextArgument(fcinfo, 1, "reason");
  if (reason.empty() || reason.size() > kLongestReason) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE,
          "reason must have 1 to " + std::to_string(kLongestReason) + " bytes", "",
          "It tells others why it is paused.");
  }
  Parameters row;
  row.AddText(name).AddText(reason);
  if (HasArgument(fcinfo, 2)) {
    const Datum until = Argument(fcinfo, 2, "until");
    if (DatumGetTimestampTz(until) <= GetCurrentTimestamp()) {
      Throw(ERRCODE_INVALID_PARAMETER_VALUE, "until must be in the future", "",
            "Leave it out for a pause that lasts until postbox.resume_" +
                std::string(pausable.table) + ".");
    }
    row.Add(TIMESTAMPTZOID, until);
  } else {
    row.AddNull(TIMESTAMPTZOID);
  }
  SpiConnection connection;
  FixedSearchPath search_path;
  RequireRightToPause(pausable, name);
  const Registrar registrar(pausable.table);
  Run("UPDATE postbox." + std::string(pausable.table) +
          " SET paused_at = CASE WHEN paused_until > clock_timestamp() THEN paused_at ELSE "
          "clock_timestamp() END, paused_reason = $2, paused_until = coalesce($3, 'infinity') "
          "WHERE name = $1",
      row);
}

void Resume(const Pausable& pausable, FunctionCallInfo fcinfo) {
  const std::string name = TextArgument(fcinfo, 0, "name");
  SpiConnection connection;
  FixedSearchPath search_path;
  RequireRightToPause(pausable, name);
  const Registrar registrar(pausable.table);
  Parameters key;
  key.AddText(name);
  Run("UPDATE postbox." + std::string(pausable.table) +
          " SET paused_at = NULL, paused_reason = NULL, paused_until = NULL WHERE name = $1 AND "
          "paused_at IS NOT NULL",
      key);
}

// Ends a suspension, too. One that fails again has a short backoff again.
void ResumePublication(FunctionCallInfo fcinfo) {
  SpiConnection connection;
  FixedSearchPath search_path;
  RequireUpdatedExtension();
  Resume(kPublication, fcinfo);
  const Registrar registrar("publication_state");
  Parameters key;
  key.AddText(TextArgument(fcinfo, 0, "name"));
  Run("UPDATE postbox.publication_state SET attempts = 1, next_retry_at = now() "
      "WHERE publication = $1 AND attempts > 0 AND next_retry_at IS NOT NULL",
      key);
  ConfigChangedAtCommit();
}

}  // namespace
}  // namespace postbox

#define POSTBOX_PAUSE_FUNCTION(name, action) \
  POSTBOX_FUNCTION(name) {                   \
    using namespace postbox;                 \
    return Guarded([&] {                     \
      action;                                \
      return Datum{0};                       \
    });                                      \
  }

POSTBOX_PAUSE_FUNCTION(pause_publication, Pause(kPublication, fcinfo))
POSTBOX_PAUSE_FUNCTION(resume_publication, ResumePublication(fcinfo))
POSTBOX_PAUSE_FUNCTION(pause_subscription, Pause(kSubscription, fcinfo))
POSTBOX_PAUSE_FUNCTION(resume_subscription, Resume(kSubscription, fcinfo))
POSTBOX_PAUSE_FUNCTION(pause_projection, Pause(kProjection, fcinfo))
POSTBOX_PAUSE_FUNCTION(resume_projection, Resume(kProjection, fcinfo))
POSTBOX_PAUSE_FUNCTION(pause_handler, Pause(kHandler, fcinfo))
POSTBOX_PAUSE_FUNCTION(resume_handler, Resume(kHandler, fcinfo))
POSTBOX_PAUSE_FUNCTION(pause_backfill, Pause(kBackfill, fcinfo))
POSTBOX_PAUSE_FUNCTION(resume_backfill, Resume(kBackfill, fcinfo))
