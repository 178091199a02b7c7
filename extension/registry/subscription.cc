// create_subscription and drop_subscription: what `postbox pull` reads. And puller_endpoint, which
// tells it where Pub/Sub is: the setting is for members of pg_read_all_settings only.
#include "extension/base/arguments.h"
#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/registry/credential.h"
#include "extension/registry/inbox_registration.h"
#include "extension/registry/registered_names.h"
#include "extension/shared/settings.h"
#include "extension/trust/act_as.h"
#include "extension/trust/registrar.h"

namespace postbox {
namespace {

struct Range {
  const char* name;
  int64 least, greatest;
};

int64 NumberArgument(FunctionCallInfo fcinfo, int number, bool bigint, const Range& range) {
  const Datum value = Argument(fcinfo, number, range.name);
  const int64 result = bigint ? DatumGetInt64(value) : DatumGetInt32(value);
  if (result < range.least || result > range.greatest) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE,
          std::string(range.name) + " must be between " + std::to_string(range.least) + " and " +
              std::to_string(range.greatest) + ", not " + std::to_string(result));
  }
  return result;
}

struct IntervalRange {
  const char* name;
  int64 least, greatest;  // microseconds
  const char* text;       // the range, for messages
};

Datum IntervalArgument(FunctionCallInfo fcinfo, int number, const IntervalRange& range) {
  const Datum value = Argument(fcinfo, number, range.name);
  const int64 microseconds = Microseconds(value);
  if (microseconds < range.least || microseconds > range.greatest) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE,
          std::string(range.name) + " must be between " + range.text);
  }
  return value;
}

void CheckPolicy(const std::string& on_error, bool has_topic) {
  if (on_error != "reject" && on_error != "dead_letter_topic" && on_error != "nack") {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, "unknown on_error: \"" + on_error + "\"", "",
          "It is reject (recorded in postbox.dead_letter), dead_letter_topic (published there) or "
          "nack (left to the subscription's own dead-letter policy).");
  }
  if (on_error == "dead_letter_topic" && !has_topic) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, "on_error dead_letter_topic needs a dead_letter_topic",
          "", "Name the topic: dead_letter_topic => '...'.");
  }
  if (on_error != "dead_letter_topic" && has_topic) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE,
          "dead_letter_topic is not used with on_error " + on_error, "",
          "Leave it out, or use on_error => 'dead_letter_topic'.");
  }
}

void InsertSubscription(const std::string& name, Parameters& row) {
  const Registrar registrar("subscription");
  if (Run("INSERT INTO postbox.subscription (name, inbox, subscription, max_outstanding_messages, "
          "max_outstanding_bytes, appliers, batch_size, batch_delay, on_error, max_attempts, "
          "min_backoff, max_backoff, dead_letter_topic, enabled, statement_timeout, lock_timeout) "
          "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) "
          "ON CONFLICT (name) DO NOTHING",
          row) == 0) {
    Throw(ERRCODE_DUPLICATE_OBJECT, "subscription \"" + name + "\" already exists", "",
          "To change it, remove it first with postbox.drop_subscription.");
  }
}

// The name was checked with the rights of the caller.
void UseSubscriptionCredential(const std::string& name, const std::string& credential) {
  if (LockCredential(credential) == "key") {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE,
          "credential \"" + credential + "\" has its secret in the database",
          "postbox pull may not read it: only superusers and workers may.",
          "Use a credential of kind file, with a path on the machine of postbox pull, or of kind "
          "environment or metadata.");
  }
  const Registrar registrar("subscription");
  Parameters row;
  row.AddText(name).AddText(credential);
  Run("UPDATE postbox.subscription SET credential = $2 WHERE name = $1", row);
}

void CreateSubscription(FunctionCallInfo fcinfo) {
  const std::string name = TextArgument(fcinfo, 0, "name");
  const Oid inbox = OidArgument(fcinfo, 1, "inbox");
  const std::string subscription = TextArgument(fcinfo, 2, "subscription");
  CheckRegisteredName("subscription", name);
  CheckSubscription(subscription);
  Parameters row;
  row.AddText(name).AddOid(REGCLASSOID, inbox).AddText(subscription);
  row.AddInt(
      static_cast<int>(NumberArgument(fcinfo, 3, false, {"max_outstanding_messages", 1, 1000000})));
  row.Add(INT8OID, Int64GetDatum(NumberArgument(fcinfo, 4, true,
                                                {"max_outstanding_bytes", 1, int64{1} << 40})));
  row.AddInt(static_cast<int>(NumberArgument(fcinfo, 5, false, {"appliers", 1, 64})));
  row.AddInt(static_cast<int>(NumberArgument(fcinfo, 6, false, {"batch_size", 1, 10000})));
  row.Add(INTERVALOID,
          IntervalArgument(fcinfo, 7, {"batch_delay", 0, 10 * USECS_PER_SEC, "0 and 10 seconds"}));
  const std::string on_error = TextArgument(fcinfo, 8, "on_error");
  row.AddText(on_error);
  row.AddInt(static_cast<int>(NumberArgument(fcinfo, 9, false, {"max_attempts", 1, 1000})));
  // Pub/Sub holds a message back for 10 minutes at most.
  constexpr int64 kLongest = 10 * USECS_PER_MINUTE;
  const Datum least =
      IntervalArgument(fcinfo, 10, {"min_backoff", 1000, kLongest, "1 millisecond and 10 minutes"});
  const Datum most = IntervalArgument(
      fcinfo, 11, {"max_backoff", Microseconds(least), kLongest, "min_backoff and 10 minutes"});
  row.Add(INTERVALOID, least).Add(INTERVALOID, most);
  CheckPolicy(on_error, HasArgument(fcinfo, 12));
  if (HasArgument(fcinfo, 12)) {
    const std::string topic = TextArgument(fcinfo, 12, "dead_letter_topic");
    CheckTopic(topic);
    row.AddText(topic);
  } else {
    row.AddNull(TEXTOID);
  }
  row.Add(BOOLOID, Argument(fcinfo, 13, "enabled"));
  for (int number = 14; number < 16; ++number) {
    const char* timeout = number == 14 ? "statement_timeout" : "lock_timeout";
    row.Add(INTERVALOID,
            IntervalArgument(fcinfo, number, {timeout, 0, 24 * USECS_PER_HOUR, "0 and 24 hours"}));
  }

  SpiConnection connection;
  FixedSearchPath search_path;
  RequireInboxOwner(inbox);
  const bool has_credential = HasArgument(fcinfo, 16);
  if (has_credential) RequireCredential(TextArgument(fcinfo, 16, "credential"));
  LockRegistration("inbox", inbox);
  InsertSubscription(name, row);
  if (has_credential) UseSubscriptionCredential(name, TextArgument(fcinfo, 16, "credential"));
}

void DropSubscription(const std::string& name) {
  SpiConnection connection;
  FixedSearchPath search_path;
  Parameters key;
  key.AddText(name);
  if (Run("SELECT inbox::oid FROM postbox.subscription WHERE name = $1", key) == 0) {
    Throw(ERRCODE_UNDEFINED_OBJECT, "subscription \"" + name + "\" does not exist", "",
          "They are listed in postbox.subscription.");
  }
  RequireInboxOwner(OidColumn(0, 1));
  const Registrar registrar("subscription");
  Run("DELETE FROM postbox.subscription WHERE name = $1", key);
}

// Roles that apply the events of a subscription have to find them: the owner of an inbox, and roles
// that have INSERT on it. That there is a subscription was decided by a role that may create them.
void RequirePuller() {
  SpiConnection connection;
  FixedSearchPath search_path;
  if (Run("SELECT FROM postbox.subscription s WHERE has_table_privilege(s.inbox, 'INSERT') "
          "UNION ALL SELECT WHERE pg_has_role('pg_read_all_settings', 'USAGE') LIMIT 1") > 0) {
    return;
  }
  Throw(ERRCODE_INSUFFICIENT_PRIVILEGE, "permission denied to read postbox.endpoint",
        "It is for roles that may apply the events of a subscription of this database.",
        "GRANT INSERT on the inbox of the subscription.");
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(puller_endpoint) {
  using namespace postbox;
  return Guarded([&] {
    RequirePuller();
    return Pg([] { return CStringGetTextDatum(settings().endpoint); });
  });
}

POSTBOX_FUNCTION(create_subscription) {
  using namespace postbox;
  return Guarded([&] {
    CreateSubscription(fcinfo);
    return Datum{0};
  });
}

POSTBOX_FUNCTION(drop_subscription) {
  using namespace postbox;
  return Guarded([&] {
    DropSubscription(TextArgument(fcinfo, 0, "name"));
    return Datum{0};
  });
}
