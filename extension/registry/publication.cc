// Publications: which events of an outbox go to which topic.
//
// Any number of publications read a log, each with its own lanes and positions.
//
// postbox.publication, its state and its lanes are written as their owner, after a check that the
// caller owns the outbox. An event of a table outbox has one published_at, so two publications of
// such an outbox may not take the same type of aggregate. This holds under concurrency: both
// transactions lock the outbox's row in postbox.outbox first, so the second sees the publication of
// the first.
#include "extension/base/arguments.h"
#include "extension/base/guard.h"
#include "extension/base/library_version.h"
#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/registry/credential.h"
#include "extension/registry/log_relations.h"
#include "extension/registry/outbox_facts.h"
#include "extension/registry/registered_names.h"
#include "extension/registry/republish.h"
#include "extension/shared/settings.h"
#include "extension/shared/shared_state.h"
#include "extension/trust/act_as.h"
#include "extension/trust/registrar.h"
#include "proto/rules/resource_name.h"

namespace postbox {
namespace {

// What create_publication sets and alter_publication may change; nullopt leaves it as it is.
struct Properties {
  std::optional<std::string> topic;
  std::optional<Datum> aggregate_types;  // text[]; empty for all types
  std::optional<int> max_attempts;
  std::optional<Datum> base_backoff;
  std::optional<Datum> max_backoff;
  std::optional<std::string> on_failure;
  std::optional<std::string> ordering;
  std::optional<int> lanes;
  std::optional<std::string> credential;  // empty: the server's identity
};

std::optional<Datum> OptionalDatum(FunctionCallInfo fcinfo, int argument) {
  if (fcinfo->args[argument].isnull) return std::nullopt;
  return fcinfo->args[argument].value;
}

constexpr int kMaxBuckets = 65536;
constexpr int kMaxLanes = 64;

bool IsBucketOrdering(std::string_view ordering) {
  constexpr std::string_view kBucket = "bucket:";
  if (!ordering.starts_with(kBucket)) return false;
  ordering.remove_prefix(kBucket.size());
  int buckets = 0;
  const auto [end, error] =
      std::from_chars(ordering.data(), ordering.data() + ordering.size(), buckets);
  return error == std::errc() && end == ordering.data() + ordering.size() && buckets >= 1 &&
         buckets <= kMaxBuckets;
}

void CheckOrdering(const std::string& ordering, bool is_log) {
  if (ordering == "key") return;
  if (ordering == "none" || IsBucketOrdering(ordering)) {
    if (is_log) return;
    Throw(ERRCODE_FEATURE_NOT_SUPPORTED,
          "ordering \"" + ordering + "\" is not supported for a table outbox", "",
          "Use ordering => 'key'.");
  }
  Throw(ERRCODE_INVALID_PARAMETER_VALUE, "unknown ordering: \"" + ordering + "\"", "",
        "It is key, none or bucket:N, with N from 1 to " + std::to_string(kMaxBuckets) + ".");
}

void CheckLanes(int lanes, bool is_log) {
  if (lanes < 1 || lanes > kMaxLanes) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, "lanes must be from 1 to " + std::to_string(kMaxLanes));
  }
  if (lanes > 1 && !is_log) {
    Throw(ERRCODE_FEATURE_NOT_SUPPORTED, "a publication of a table outbox has one lane", "",
          "Any number of workers share it already: raise postbox.publishers.");
  }
}

// The number of types; an error unless they are one-dimensional, not null and not empty.
int CheckAggregateTypes(Datum array) {
  enum class Fault { kNone, kDimensions, kNull, kEmpty };
  int count = 0;
  const Fault fault = Pg([&] {
    ArrayType* types = DatumGetArrayTypeP(array);
    if (ARR_NDIM(types) > 1) return Fault::kDimensions;
    Datum* elements = nullptr;
    bool* nulls = nullptr;
    deconstruct_array(types, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &count);
    for (int i = 0; i < count; ++i) {
      if (nulls[i]) return Fault::kNull;
      if (VARSIZE_ANY_EXHDR(DatumGetPointer(elements[i])) == 0) return Fault::kEmpty;
    }
    return Fault::kNone;
  });
  if (fault == Fault::kNone) return count;
  Throw(ERRCODE_INVALID_PARAMETER_VALUE,
        fault == Fault::kDimensions ? "aggregate_types must have one dimension"
        : fault == Fault::kNull     ? "aggregate_types may not contain null"
                                    : "aggregate_types may not contain an empty text");
}

void CheckBackoff(const char* name, const std::optional<Datum>& interval) {
  if (!interval.has_value()) return;
  const int64 microseconds = Microseconds(*interval);
  if (microseconds <= 0)
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, std::string(name) + " must be positive");
  if (microseconds > USECS_PER_DAY) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, std::string(name) + " must be at most one day");
  }
}

void CheckProperties(const Properties& properties) {
  if (properties.topic.has_value()) CheckTopic(*properties.topic);
  if (properties.max_attempts.has_value() && *properties.max_attempts < 1) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, "max_attempts must be at least 1");
  }
  CheckBackoff("base_backoff", properties.base_backoff);
  CheckBackoff("max_backoff", properties.max_backoff);
  if (properties.on_failure.has_value() && *properties.on_failure != "park_key" &&
      *properties.on_failure != "park_event") {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, "unknown on_failure: \"" + *properties.on_failure + "\"",
          "",
          "It is park_key (later events of the key wait) or park_event (later events continue).");
  }
}

void WarnOfWhatIsMissing(const std::string& topic) {
  if (!pubsub::IsFullResourceName(topic) && *settings().project_id == '\0') {
    WarnClient("postbox.project_id is not set",
               "Set it for the database, or give the full name projects/PROJECT/topics/ID.");
  }
  static bool warned = false;
  if (!Preloaded() && !warned) {
    warned = true;
    WarnClient("events wait: postbox is not in shared_preload_libraries, so nothing publishes them",
               "Add postbox to shared_preload_libraries and restart the server.");
  }
}

// Throws if the publication, which has been written, overlaps with another one of its outbox.
void CheckAgainstOthers(const std::string& name, Oid outbox) {
  Parameters parameters;
  parameters.AddText(name).AddOid(REGCLASSOID, outbox);
  const std::string sql =
      "SELECT other.name FROM postbox.publication this JOIN postbox.publication other"
      " ON other.outbox = this.outbox AND other.name <> this.name WHERE this.name = $1 AND "
      "this.outbox = $2"
      " AND (this.aggregate_types IS NULL OR other.aggregate_types IS NULL"
      " OR this.aggregate_types && other.aggregate_types) ORDER BY other.name LIMIT 1";
  if (Run(sql, parameters) == 0) return;
  Throw(ERRCODE_INVALID_OBJECT_DEFINITION,
        "publication \"" + PrintedColumn(0, 1) + "\" takes events of the same aggregate type",
        "In a table outbox each event is published by one publication only.",
        "Give each publication of the outbox separate aggregate_types.");
}

[[noreturn]] void ThrowBackoffs() {
  Throw(ERRCODE_INVALID_PARAMETER_VALUE, "base_backoff may not be greater than max_backoff");
}

void AddTo(Parameters* parameters, const Properties& properties) {
  const auto add = [&](Oid type, const std::optional<Datum>& value) {
    if (value.has_value()) {
      parameters->Add(type, *value);
    } else {
      parameters->AddNull(type);
    }
  };
  parameters->AddTextOrNull(properties.topic);
  add(TEXTARRAYOID, properties.aggregate_types);
  add(INT4OID, properties.max_attempts.has_value()
                   ? std::optional(Int32GetDatum(*properties.max_attempts))
                   : std::nullopt);
  add(INTERVALOID, properties.base_backoff);
  add(INTERVALOID, properties.max_backoff);
  parameters->AddTextOrNull(properties.on_failure).AddTextOrNull(properties.ordering);
}

// A new publication has what is in the log, rows of other clusters included (foreign_events.cc).
void TakeForeignRows(const std::string& name, Oid outbox) {
  Parameters parameters;
  parameters.AddText(name).AddOid(REGCLASSOID, outbox);
  if (Run("INSERT INTO postbox.former_position (publication, slice, origin) "
          "SELECT DISTINCT $1, l.slice, f.origin FROM postbox.lane l, postbox.publication p "
          "JOIN postbox.lane_progress f ON f.publication = p.name "
          "WHERE p.outbox = $2 AND l.publication = $1 AND f.origin <> postbox.cluster_origin()",
          parameters) == 0) {
    return;
  }
  const ActAs owner(RelationOwner(outbox));
  Run("SELECT postbox.park_settled($1, $2)", parameters);
}

// Where a publication of a log begins that does not begin with its first event: what the snapshot
// sees of the rows up to this seq counts as read (log_position_logic.h).
struct LogStart {
  int64 seq;
  std::string snapshot;
  std::string next_xid;
};

// Nothing for the beginning.
std::optional<LogStart> FindStart(Oid outbox, bool is_log, const std::string& start) {
  if (start.empty() || start == "beginning") return std::nullopt;
  if (!is_log) {
    Throw(ERRCODE_FEATURE_NOT_SUPPORTED,
          "start => '" + start + "' is not supported for a table outbox",
          "Its events are pending until they are published.",
          "Set published_at in the rows that are not to be published, then use start => "
          "'beginning'.");
  }
  RequireUpdatedExtension();
  LogStart position;
  // What this transaction has emitted is committed from now on, too. Its own id is not among those
  // that its snapshot says are running.
  Run("SELECT CASE WHEN own.id IS NOT NULL AND pg_visible_in_snapshot(own.id, s.s) THEN "
      "least(pg_snapshot_xmin(s.s), own.id)::text || ':' || pg_snapshot_xmax(s.s)::text || ':' || "
      "(SELECT string_agg(x.id::text, ',' ORDER BY x.id) FROM (SELECT r.id FROM "
      "pg_snapshot_xip(s.s) AS r(id) UNION SELECT own.id) AS x) ELSE s.s::text END "
      "FROM pg_current_snapshot() AS s(s), pg_current_xact_id_if_assigned() AS own(id)");
  position.snapshot = TextColumn(0, 1);
  Parameters key;
  key.AddOid(REGCLASSOID, outbox);
  Run("SELECT coalesce(pg_sequence_last_value(postbox.log_sequence($1)), 0)", key);
  position.seq = Int64Column(0, 1);
  // After the seq: an event that has taken that has a smaller one.
  position.next_xid = std::to_string(U64FromFullTransactionId(ReadNextFullTransactionId()));
  if (start == "now") return position;

  Parameters moment;
  moment.AddText(start);
  try {
    Run("SELECT $1::timestamptz", moment);
  } catch (const PostgresError& error) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, "unknown start: \"" + start + "\"", error.message,
          "It is beginning, now, or a time with a time zone.");
  }
  const ActAs owner(RelationOwner(outbox));
  Run("SELECT min(e.seq) FROM " + RelationName(outbox) +
          " AS e WHERE e.origin = postbox.cluster_origin() AND e.occurred_at >= $1::timestamptz",
      moment);
  RequireColumnType(1, INT8OID);
  if (!IsNull(0, 1)) position.seq = std::min(position.seq, Int64Column(0, 1) - 1);
  return position;
}

void BeginAt(const std::string& name, Oid outbox, const LogStart& position) {
  Parameters parameters;
  parameters.AddText(name)
      .Add(INT8OID, Int64GetDatum(position.seq))
      .AddText(position.snapshot)
      .AddText(position.next_xid)
      .AddOid(REGCLASSOID, outbox);
  Run("UPDATE postbox.lane SET floor = 0, hwm = $2, snapshot = $3::pg_snapshot, next_xid = "
      "$4::xid8, zone_upto = ARRAY[$2], zone_snapshot = ARRAY[$3::pg_snapshot], zone_next_xid = "
      "ARRAY[$4::xid8] WHERE publication = $1",
      parameters);
  // All rows of other clusters were there before. The floor is no more than the seq: the log may go
  // back there, and get more rows.
  Run("INSERT INTO postbox.former_position (publication, slice, origin, floor, hwm, snapshot, "
      "next_xid) SELECT $1, l.slice, f.origin, $2, $2, $3::pg_snapshot, $4::xid8 "
      "FROM postbox.lane l, (SELECT DISTINCT o.origin FROM postbox.publication p "
      "JOIN postbox.lane_progress o ON o.publication = p.name WHERE p.outbox = $5 "
      "AND o.origin <> postbox.cluster_origin()) AS f WHERE l.publication = $1 "
      "ON CONFLICT (publication, slice, origin) DO UPDATE SET floor = EXCLUDED.floor, "
      "hwm = EXCLUDED.hwm, snapshot = EXCLUDED.snapshot, next_xid = EXCLUDED.next_xid",
      parameters);
}

void SayWhatItBeginsWith(const std::string& name, Oid outbox, bool is_log) {
  Parameters key;
  key.AddText(name);
  const ActAs owner(RelationOwner(outbox));
  Run("SELECT coalesce(ready, 0) FROM postbox.publication_backlog($1)", key);
  const int64 events = Int64Column(0, 1);
  if (events == 0) return;
  Pg([&] {
    ereport(NOTICE,
            (errmsg("publication \"%s\" begins with %lld events that are already in the outbox",
                    name.c_str(), static_cast<long long>(events)),
             is_log ? errhint("Use start => 'now' to skip events that are already committed.")
                    : errhint("Set published_at in the rows that are not to be published.")));
  });
}

// The name was checked with the rights of the caller. Here it acts as the owner of the tables.
void UsePublicationCredential(const std::string& name, const std::string& credential) {
  if (!credential.empty()) LockCredential(credential);
  Parameters row;
  row.AddText(name).AddText(credential);
  Run("UPDATE postbox.publication SET credential = nullif($2, '') WHERE name = $1", row);
}

std::string CredentialOf(const std::string& name) {
  Parameters key;
  key.AddText(name);
  if (Run("SELECT coalesce(credential, '') FROM postbox.publication WHERE name = $1", key) == 0) {
    return "";
  }
  return TextColumn(0, 1);
}

// To name another topic spends the credential, and so does to name another credential.
// Returns the one that is spent.
std::string RequireRightToSpend(const std::string& name, const Properties& properties) {
  if (!properties.topic.has_value() && !properties.credential.has_value()) return "";
  std::string credential = properties.credential.value_or(CredentialOf(name));
  if (!credential.empty()) RequireCredential(credential);
  return credential;
}

// With the registration locked: the publication may have been given another credential since
// the right to spend the one before was looked at.
void RequireSameCredential(const std::string& name, const Properties& properties,
                           const std::string& checked) {
  if (!properties.topic.has_value() || properties.credential.has_value()) return;
  if (CredentialOf(name) == checked) return;
  Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        "publication \"" + name + "\" was given another credential concurrently", "", "Try again.");
}

// Another topic or identity: an error of the old one is no reason to stay suspended.
void EndSuspension(const std::string& name) {
  Parameters key;
  key.AddText(name);
  Run("UPDATE postbox.publication_state SET attempts = 0, next_retry_at = NULL, last_error = NULL, "
      "suspended_since = NULL WHERE publication = $1",
      key);
}

void CreatePublication(const std::string& name, Oid outbox, const Properties& properties,
                       const std::string& start) {
  SpiConnection connection;
  FixedSearchPath search_path;
  const bool is_log = ReadOwnedOutbox(outbox).is_log;
  CheckOrdering(*properties.ordering, is_log);
  CheckLanes(*properties.lanes, is_log);
  const std::optional<LogStart> position = FindStart(outbox, is_log, start);
  if (properties.credential.has_value()) RequireCredential(*properties.credential);
  const Registrar registrar("publication");
  LockRegistration("outbox", outbox);
  Parameters parameters;
  AddTo(&parameters, properties);
  Run("SELECT $4 > $5 FROM (SELECT $1::text, $2::text[], $3::int, $4::interval, $5::interval, "
      "$6::text, $7::text) p",
      parameters);
  if (BoolColumn(0, 1)) ThrowBackoffs();
  parameters.AddText(name).AddOid(REGCLASSOID, outbox).AddInt(*properties.lanes);
  const uint64 created =
      Run("INSERT INTO postbox.publication (topic, aggregate_types, max_attempts, base_backoff, "
          "max_backoff, on_failure, ordering,"
          " name, outbox, lanes) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON "
          "CONFLICT (name) DO NOTHING",
          parameters);
  if (created == 0) {
    Throw(ERRCODE_DUPLICATE_OBJECT, "publication \"" + name + "\" already exists", "",
          "Choose another name, or change it with postbox.alter_publication.");
  }
  if (properties.credential.has_value()) UsePublicationCredential(name, *properties.credential);
  if (!is_log) CheckAgainstOthers(name, outbox);
  Parameters key;
  key.AddText(name);
  // A restore of the extension's tables without this outbox leaves rows behind.
  Run("DELETE FROM postbox.publication_state WHERE publication = $1", key);
  Run("DELETE FROM postbox.lane WHERE publication = $1", key);
  Run("DELETE FROM postbox.former_position WHERE publication = $1", key);
  Run("INSERT INTO postbox.publication_state (publication) VALUES ($1)", key);
  if (is_log) {
    key.AddInt(*properties.lanes);
    Run("INSERT INTO postbox.lane (publication, slice, system_identifier) SELECT $1, s, "
        "c.system_identifier FROM generate_series(0, $2 - 1) s, pg_control_system() c",
        key);
  }
  if (position.has_value()) {
    BeginAt(name, outbox, *position);
    return;
  }
  if (is_log) TakeForeignRows(name, outbox);
  if (!start.empty()) SayWhatItBeginsWith(name, outbox, is_log);
}

void AlterPublication(const std::string& name, const Properties& properties) {
  SpiConnection connection;
  FixedSearchPath search_path;
  RequireUpdatedExtension();
  const Oid outbox = OutboxOfPublication(name);
  const bool is_log = ReadOwnedOutbox(outbox).is_log;
  const std::string spent = RequireRightToSpend(name, properties);
  if (properties.ordering.has_value()) CheckOrdering(*properties.ordering, is_log);
  if (properties.lanes.has_value()) CheckLanes(*properties.lanes, is_log);
  const Registrar registrar("publication");
  LockRegistration("outbox", outbox);
  RequireSameCredential(name, properties, spent);
  Parameters parameters;
  AddTo(&parameters, properties);
  parameters.AddText(name);
  const uint64 found =
      Run("SELECT coalesce($4, base_backoff) > coalesce($5, max_backoff)"
          " FROM (SELECT $1::text, $2::text[], $3::int, $4::interval, $5::interval, $6::text, "
          "$7::text) p, postbox.publication"
          " WHERE name = $8",
          parameters);
  if (found > 0 && BoolColumn(0, 1)) ThrowBackoffs();
  // An empty array takes all types, which is stored as NULL.
  if (properties.lanes.has_value()) {
    parameters.AddInt(*properties.lanes);
  } else {
    parameters.AddNull(INT4OID);
  }
  Run("UPDATE postbox.publication SET topic = coalesce($1, topic),"
      " filter_changes = CASE WHEN nullif(coalesce($2, aggregate_types), '{}') IS DISTINCT FROM "
      "aggregate_types AND filter_changes[cardinality(filter_changes)] <> pg_current_xact_id() "
      "THEN filter_changes[greatest(cardinality(filter_changes) - 98, 1):] || "
      "pg_current_xact_id() ELSE filter_changes END,"
      " aggregate_types = nullif(coalesce($2, aggregate_types), '{}'), max_attempts = coalesce($3, "
      "max_attempts),"
      " base_backoff = coalesce($4, base_backoff), max_backoff = coalesce($5, max_backoff),"
      " on_failure = coalesce($6, on_failure), ordering = coalesce($7, ordering),"
      " wanted_lanes = nullif(coalesce($9, wanted_lanes), lanes) WHERE name = $8",
      parameters);
  if (properties.credential.has_value()) UsePublicationCredential(name, *properties.credential);
  if (!is_log) CheckAgainstOthers(name, outbox);
  if (properties.topic.has_value() || properties.credential.has_value()) EndSuspension(name);
}

void DropPublication(const std::string& name) {
  SpiConnection connection;
  FixedSearchPath search_path;
  const Oid owner = ReadOwnedOutbox(OutboxOfPublication(name)).owner;
  // They were published. Another publication of the name, or of the table, is not to send them.
  TakeBackRepublished(name, owner);
  const Registrar registrar("publication");
  Parameters key;
  key.AddText(name);
  Run("DELETE FROM postbox.publication WHERE name = $1", key);
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(create_publication) {
  return postbox::Guarded([&] {
    const std::string name = postbox::TextArgument(fcinfo, 0, "name");
    postbox::CheckRegisteredName("publication", name);
    const Oid outbox = postbox::OidArgument(fcinfo, 1, "outbox");
    postbox::Properties properties;
    properties.topic = postbox::TextArgument(fcinfo, 2, "topic");
    properties.aggregate_types = postbox::OptionalDatum(fcinfo, 3);
    if (properties.aggregate_types.has_value() &&
        postbox::CheckAggregateTypes(*properties.aggregate_types) == 0) {
      postbox::Throw(ERRCODE_INVALID_PARAMETER_VALUE, "aggregate_types may not be empty", "",
                     "NULL takes the events of all types.");
    }
    properties.ordering = postbox::TextArgument(fcinfo, 4, "ordering");
    properties.lanes = DatumGetInt32(postbox::Argument(fcinfo, 5, "lanes"));
    properties.max_attempts = DatumGetInt32(postbox::Argument(fcinfo, 6, "max_attempts"));
    properties.base_backoff = postbox::Argument(fcinfo, 7, "base_backoff");
    properties.max_backoff = postbox::Argument(fcinfo, 8, "max_backoff");
    properties.on_failure = postbox::TextArgument(fcinfo, 9, "on_failure");
    postbox::CheckProperties(properties);
    const std::string start = postbox::TextArgument(fcinfo, 10, "start");
    properties.credential = postbox::OptionalText(fcinfo, 11);
    postbox::CreatePublication(name, outbox, properties, start);
    postbox::WarnOfWhatIsMissing(*properties.topic);
    return Datum{0};
  });
}

POSTBOX_FUNCTION(alter_publication) {
  return postbox::Guarded([&] {
    const std::string name = postbox::TextArgument(fcinfo, 0, "name");
    postbox::Properties properties;
    properties.topic = postbox::OptionalText(fcinfo, 1);
    properties.aggregate_types = postbox::OptionalDatum(fcinfo, 2);
    if (properties.aggregate_types.has_value())
      postbox::CheckAggregateTypes(*properties.aggregate_types);
    if (!PG_ARGISNULL(3)) properties.max_attempts = PG_GETARG_INT32(3);
    properties.base_backoff = postbox::OptionalDatum(fcinfo, 4);
    properties.max_backoff = postbox::OptionalDatum(fcinfo, 5);
    properties.on_failure = postbox::OptionalText(fcinfo, 6);
    properties.ordering = postbox::OptionalText(fcinfo, 7);
    if (!PG_ARGISNULL(8)) properties.lanes = PG_GETARG_INT32(8);
    properties.credential = postbox::OptionalText(fcinfo, 9);
    postbox::CheckProperties(properties);
    postbox::AlterPublication(name, properties);
    if (properties.topic.has_value()) postbox::WarnOfWhatIsMissing(*properties.topic);
    return Datum{0};
  });
}

POSTBOX_FUNCTION(drop_publication) {
  return postbox::Guarded([&] {
    postbox::DropPublication(postbox::TextArgument(fcinfo, 0, "name"));
    return Datum{0};
  });
}

POSTBOX_FUNCTION(check_topic_name) {
  return postbox::Guarded([&] {
    postbox::CheckTopic(postbox::TextArgument(fcinfo, 0, "topic"));
    return Datum{0};
  });
}
