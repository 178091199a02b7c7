// create_subscription, alter_subscription and drop_subscription: what `postbox pull` reads. And
// puller_endpoint, which tells it where Pub/Sub is: the setting is for members of
// pg_read_all_settings only.
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

// Pub/Sub holds a message back for 10 minutes at most.
constexpr int64 kLongestBackoff = 10 * USECS_PER_MINUTE;
constexpr int64 kDay = 24 * USECS_PER_HOUR;

// The properties in the order of the arguments of create_subscription and alter_subscription. A
// text has no range.
struct Property {
  const char* name;
  Oid type;
  int64 least = 0, greatest = 0;  // an interval in microseconds
  const char* range = nullptr;    // of an interval, for messages
};
constexpr Property kProperties[] = {
    {"max_outstanding_messages", INT4OID, 1, 1000000},
    {"max_outstanding_bytes", INT8OID, 1, int64{1} << 40},
    {"appliers", INT4OID, 1, 64},
    {"batch_size", INT4OID, 1, 10000},
    {"batch_delay", INTERVALOID, 0, 10 * USECS_PER_SEC, "0 and 10 seconds"},
    {"on_error", TEXTOID},
    {"max_attempts", INT4OID, 1, 1000},
    {"min_backoff", INTERVALOID, 1000, kLongestBackoff, "1 millisecond and 10 minutes"},
    {"max_backoff", INTERVALOID, 1000, kLongestBackoff, "min_backoff and 10 minutes"},
    {"dead_letter_topic", TEXTOID},
    {"statement_timeout", INTERVALOID, 0, kDay, "0 and 24 hours"},
    {"lock_timeout", INTERVALOID, 0, kDay, "0 and 24 hours"},
    {"parked_min_backoff", INTERVALOID, 1000, kDay, "1 millisecond and 24 hours"},
    {"parked_max_backoff", INTERVALOID, 1000, kDay, "parked_min_backoff and 24 hours"},
    {"parked_max_attempts", INT4OID, 0, 1000000},
    {"max_parked_keys", INT4OID, 1, 1000000},
    {"max_parked_events", INT4OID, 1, 10000000},
    {"max_parked_bytes", INT8OID, 1, int64{1} << 40},
};
constexpr int kCount = std::size(kProperties);

void CheckRange(const Property& property, Datum value) {
  const std::string name(property.name);
  if (property.type == INTERVALOID) {
    const int64 microseconds = Microseconds(value);
    if (microseconds >= property.least && microseconds <= property.greatest) return;
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, name + " must be between " + property.range);
  }
  const int64 number = property.type == INT8OID ? DatumGetInt64(value) : DatumGetInt32(value);
  if (number >= property.least && number <= property.greatest) return;
  Throw(ERRCODE_INVALID_PARAMETER_VALUE,
        name + " must be between " + std::to_string(property.least) + " and " +
            std::to_string(property.greatest) + ", not " + std::to_string(number));
}

// Adds the properties that the arguments from `first` on give, in their order; NULL for one that
// they leave out.
void AddProperties(FunctionCallInfo fcinfo, int first, Parameters* row) {
  for (int i = 0; i < kCount; ++i) {
    const Property& property = kProperties[i];
    if (!HasArgument(fcinfo, first + i)) {
      row->AddNull(property.type);
      continue;
    }
    const Datum value = fcinfo->args[first + i].value;
    if (property.type != TEXTOID) CheckRange(property, value);
    row->Add(property.type, value);
  }
}

void CheckPolicy(const std::string& on_error, bool has_topic) {
  if (on_error != "reject" && on_error != "dead_letter_topic" && on_error != "nack" &&
      on_error != "park_key") {
    Throw(
        ERRCODE_INVALID_PARAMETER_VALUE, "unknown on_error: \"" + on_error + "\"", "",
        "It is reject (recorded in postbox.dead_letter), park_key (recorded there, with all later "
        "events of its key), dead_letter_topic (published there) or nack (left to the "
        "subscription's own dead-letter policy).");
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

void RequireBackoffs(bool fit, bool parked_fit) {
  if (!fit) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE,
          "max_backoff must be between min_backoff and 10 minutes");
  }
  if (parked_fit) return;
  Throw(ERRCODE_INVALID_PARAMETER_VALUE,
        "parked_max_backoff must be between parked_min_backoff and 24 hours");
}

// The name was checked with the rights of the caller. Empty: the credentials of the environment.
void UseSubscriptionCredential(const std::string& name, const std::string& credential) {
  if (!credential.empty() && LockCredential(credential) == "key") {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE,
          "credential \"" + credential + "\" has its secret in the database",
          "postbox pull may not read it: only superusers and workers may.",
          "Use a credential of kind file, with a path on the machine of postbox pull, or of kind "
          "environment or metadata.");
  }
  const Registrar registrar("subscription");
  Parameters row;
  row.AddText(name).AddText(credential);
  Run("UPDATE postbox.subscription SET credential = nullif($2, '') WHERE name = $1", row);
}

// Of kProperties, and the arguments of the two functions that have the first of them.
constexpr int kOnError = 5, kLeast = 7, kTopic = 9, kLeastParked = 12;
constexpr int kCreateFirst = 3, kAlterFirst = 2;

void CheckNames(const std::optional<std::string>& subscription,
                const std::optional<std::string>& topic) {
  if (subscription.has_value()) CheckSubscription(*subscription);
  if (topic.has_value()) CheckTopic(*topic);
}

void InsertSubscription(const std::string& name, Parameters& row) {
  const Registrar registrar("subscription");
  if (Run("INSERT INTO postbox.subscription (name, subscription, max_outstanding_messages, "
          "max_outstanding_bytes, appliers, batch_size, batch_delay, on_error, max_attempts, "
          "min_backoff, max_backoff, dead_letter_topic, statement_timeout, lock_timeout, "
          "parked_min_backoff, parked_max_backoff, parked_max_attempts, max_parked_keys, "
          "max_parked_events, max_parked_bytes, inbox) "
          "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, "
          "$18, $19, $20, $21) "
          "ON CONFLICT (name) DO NOTHING",
          row) == 0) {
    Throw(ERRCODE_DUPLICATE_OBJECT, "subscription \"" + name + "\" already exists", "",
          "Choose another name, or change it with postbox.alter_subscription.");
  }
}

void CreateSubscription(FunctionCallInfo fcinfo) {
  const std::string name = TextArgument(fcinfo, 0, "name");
  const Oid inbox = OidArgument(fcinfo, 1, "inbox");
  const std::string subscription = TextArgument(fcinfo, 2, "subscription");
  CheckRegisteredName("subscription", name);
  for (int i = 0; i < kCount; ++i) {
    if (i != kTopic) Argument(fcinfo, kCreateFirst + i, kProperties[i].name);
  }
  const std::optional<std::string> topic = OptionalText(fcinfo, kCreateFirst + kTopic);
  const std::string on_error = TextArgument(fcinfo, kCreateFirst + kOnError, "on_error");
  CheckPolicy(on_error, topic.has_value());
  CheckNames(subscription, topic);
  Parameters row;
  row.AddText(name).AddText(subscription);
  AddProperties(fcinfo, kCreateFirst, &row);
  row.AddOid(REGCLASSOID, inbox);
  const auto fit = [&](int least) {  // the longest backoff follows the shortest
    return Microseconds(fcinfo->args[kCreateFirst + least].value) <=
           Microseconds(fcinfo->args[kCreateFirst + least + 1].value);
  };
  RequireBackoffs(fit(kLeast), fit(kLeastParked));
  const std::optional<std::string> credential = OptionalText(fcinfo, kCreateFirst + kCount);

  SpiConnection connection;
  FixedSearchPath search_path;
  RequireInboxOwner(inbox);
  if (credential.has_value()) RequireCredential(*credential);
  if (on_error == "park_key") SetParksKeys(inbox, true);
  LockRegistration("inbox", inbox);
  InsertSubscription(name, row);
  if (credential.has_value()) UseSubscriptionCredential(name, *credential);
}

// What the properties that are given make of those that stay. The registration is locked.
void CheckAltered(FunctionCallInfo fcinfo, const std::string& name, Parameters& row) {
  const std::optional<std::string> subscription = OptionalText(fcinfo, 1);
  const std::optional<std::string> topic = OptionalText(fcinfo, kAlterFirst + kTopic);
  const std::optional<std::string> credential = OptionalText(fcinfo, kAlterFirst + kCount);
  if (Run("SELECT coalesce($10, min_backoff) > coalesce($11, max_backoff), "
          "coalesce($8, on_error), dead_letter_topic IS NOT NULL, coalesce(credential, ''), "
          "coalesce($15, parked_min_backoff) > coalesce($16, parked_max_backoff) "
          "FROM postbox.subscription WHERE name = $1",
          row) == 0) {
    ThrowUnknownName("subscription", name);
  }
  RequireBackoffs(!BoolColumn(0, 1), !BoolColumn(0, 5));
  const std::string on_error = TextColumn(0, 2);
  const bool has_topic = topic.has_value() || (on_error == "dead_letter_topic" && BoolColumn(0, 3));
  const std::string spent = credential.value_or(TextColumn(0, 4));
  CheckPolicy(on_error, has_topic);
  CheckNames(subscription, topic);
  // To name another subscription or topic spends the credential, too.
  const bool spends = subscription.has_value() || topic.has_value() || credential.has_value();
  if (spends && !spent.empty()) RequireCredential(spent);
}

void AlterSubscription(FunctionCallInfo fcinfo) {
  const std::string name = TextArgument(fcinfo, 0, "name");
  Parameters row;
  row.AddText(name).AddTextOrNull(OptionalText(fcinfo, 1));
  AddProperties(fcinfo, kAlterFirst, &row);

  SpiConnection connection;
  FixedSearchPath search_path;
  const Oid inbox = InboxOf("subscription", name);
  RequireInboxOwner(inbox);
  if (OptionalText(fcinfo, kAlterFirst + kOnError) == "park_key") SetParksKeys(inbox, true);
  LockRegistration("inbox", inbox);
  CheckAltered(fcinfo, name, row);
  const Registrar registrar("subscription");
  Run("UPDATE postbox.subscription SET subscription = coalesce($2, subscription), "
      "max_outstanding_messages = coalesce($3, max_outstanding_messages), "
      "max_outstanding_bytes = coalesce($4, max_outstanding_bytes), "
      "appliers = coalesce($5, appliers), batch_size = coalesce($6, batch_size), "
      "batch_delay = coalesce($7, batch_delay), on_error = coalesce($8, on_error), "
      "max_attempts = coalesce($9, max_attempts), min_backoff = coalesce($10, min_backoff), "
      "max_backoff = coalesce($11, max_backoff), "
      "dead_letter_topic = CASE coalesce($8, on_error) WHEN 'dead_letter_topic' "
      "THEN coalesce($12, dead_letter_topic) END, "
      "statement_timeout = coalesce($13, statement_timeout), "
      "lock_timeout = coalesce($14, lock_timeout), "
      "parked_min_backoff = coalesce($15, parked_min_backoff), "
      "parked_max_backoff = coalesce($16, parked_max_backoff), "
      "parked_max_attempts = coalesce($17, parked_max_attempts), "
      "max_parked_keys = coalesce($18, max_parked_keys), "
      "max_parked_events = coalesce($19, max_parked_events), "
      "max_parked_bytes = coalesce($20, max_parked_bytes) WHERE name = $1",
      row);
  if (const auto credential = OptionalText(fcinfo, kAlterFirst + kCount)) {
    UseSubscriptionCredential(name, *credential);
  }
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

POSTBOX_FUNCTION(alter_subscription) {
  using namespace postbox;
  return Guarded([&] {
    AlterSubscription(fcinfo);
    return Datum{0};
  });
}

POSTBOX_FUNCTION(drop_subscription) {
  using namespace postbox;
  return Guarded([&] {
    DropNamed("subscription", TextArgument(fcinfo, 0, "name"));
    return Datum{0};
  });
}
