// See define_settings.h. The tables below are the only place that knows the name, range, default,
// unit and description of a setting.
//
// Contexts: a setting that decides where credentials go (endpoint, project) is for the
// administrator; one that describes an event (default_outbox, the context attributes) is for every
// session.
#include "extension/lifecycle/define_settings.h"

#include "extension/base/guard.h"
#include "extension/rules/failpoint_list.h"
#include "extension/shared/settings.h"
#include "extension/shared/shared_state.h"
#include "proto/rules/endpoint.h"
#include "proto/rules/limits.h"
#include "proto/rules/otlp_endpoint.h"
#include "proto/rules/resource_name.h"
#include "proto/rules/utf8.h"

namespace postbox {
namespace {

Settings values;

// A check hook returns what is wrong with a value, as a sentence for DETAIL, or an empty text.
using Check = std::string (*)(std::string_view value);

// Runs as a GUC check hook: an exception may not leave it, and what it calls last (for the error
// report) owns nothing.
template <Check check>
bool CheckHook(char** new_value, void** /*extra*/, GucSource /*source*/) {
  static char problem[512];
  problem[0] = '\0';
  try {
    const std::string text = check(*new_value == nullptr ? "" : *new_value);
    std::snprintf(problem, sizeof problem, "%s", text.c_str());
  } catch (const std::exception&) {
    std::snprintf(problem, sizeof problem, "Out of memory.");
  }
  if (problem[0] == '\0') return true;
  GUC_check_errdetail("%s", problem);
  return false;
}

// A rule of proto/rules returns a lower-case phrase; DETAIL is a sentence.
std::string Sentence(std::string text) {
  if (text.empty()) return text;
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  if (text.back() != '.') text += '.';
  return text;
}

std::string CheckEndpoint(std::string_view value) {
  pubsub::Endpoint endpoint;
  std::string error;
  return pubsub::ParseEndpoint(value, nullptr, &endpoint, &error) ? "" : Sentence(error);
}

std::string CheckOtlpEndpoint(std::string_view value) {
  pubsub::Endpoint endpoint;
  std::string error;
  return value.empty() || pubsub::ParseOtlpEndpoint(value, &endpoint, &error) ? ""
                                                                              : Sentence(error);
}

std::string CheckProject(std::string_view value) {
  return value.empty() ? "" : Sentence(pubsub::CheckProjectId(value));
}

// Only the form: the table may not exist yet, and a setting of a role or database is read where
// there is no transaction.
std::string CheckOutboxName(std::string_view value) {
  if (value.empty()) return "";
  std::string copy(value);
  List* parts = NIL;
  const bool good = Pg([&] { return SplitIdentifierString(copy.data(), '.', &parts); });
  const int count = good ? list_length(parts) : 0;
  if (good) Pg([&] { list_free(parts); });
  return count == 1 || count == 2 ? "" : "The form is table or schema.table.";
}

// Who has set a value, and how.
struct SettingOrigin {
  Oid role;
  GucSource source;
};

// That of the present value of postbox.default_outbox.
SettingOrigin default_outbox_origin = {InvalidOid, PGC_S_DEFAULT};

// The server keeps `extra` with each value, also with those that are restored later.
bool CheckDefaultOutbox(char** new_value, void** extra, GucSource source) {
  if (!CheckHook<CheckOutboxName>(new_value, extra, source)) return false;
  auto* origin = static_cast<SettingOrigin*>(AllocateSettingExtra(sizeof(SettingOrigin)));
  if (origin == nullptr) return false;
  int context = 0;
  // No assertion, unlike GetUserId(): there is no user yet when a process starts.
  GetUserIdAndSecContext(&origin->role, &context);
  origin->source = source;
  *extra = origin;
  return true;
}

void AssignDefaultOutbox(const char* /*new_value*/, void* extra) {
  if (extra != nullptr) default_outbox_origin = *static_cast<SettingOrigin*>(extra);
}

MuteOrigin mute_origin = {InvalidOid, false, InvalidLocalTransactionId};

// A value of the configuration, a database, a role or a connection would hold for more than one
// transaction. (Whether a value is tested for ALTER ROLE or for the SET clause of a function is not
// said here. One of a role is refused when it connects.)
bool CheckMuteChanges(bool* new_value, void** extra, GucSource source) {
  if (*new_value && source < PGC_S_INTERACTIVE) {
    GUC_check_errdetail("It is for one transaction: SET LOCAL postbox.mute_changes = on.");
    return false;
  }
  auto* origin = static_cast<MuteOrigin*>(AllocateSettingExtra(sizeof(MuteOrigin)));
  if (origin == nullptr) return false;
  int context = 0;
  GetUserIdAndSecContext(&origin->role, &context);
  origin->by_function = InLocalUserIdChange();
  origin->transaction = CurrentLocalTransaction();
  *extra = origin;
  return true;
}

void AssignMuteChanges(bool /*new_value*/, void* extra) {
  if (extra != nullptr) mute_origin = *static_cast<MuteOrigin*>(extra);
}

std::string CheckAttributeValue(std::string_view value) {
  if (value.size() > pubsub::kMaxAttributeValueBytes) {
    return "It becomes an attribute of events, and Pub/Sub allows an attribute value of at most " +
           std::to_string(pubsub::kMaxAttributeValueBytes) + " bytes.";
  }
  return "";
}

struct StringSetting {
  const char* name;
  const char* description;
  const char* details;
  char** value;
  GucContext context;
  GucStringCheckHook check;
  int flags;
  GucStringAssignHook assign = nullptr;
};

struct IntSetting {
  const char* name;
  const char* description;
  const char* details;
  int* value;
  int initial, least, greatest;
  int flags;  // the unit
  GucContext context = PGC_SIGHUP;
};

// Of the settings that become an attribute of events. CheckAttributeValue() knows the limit.
#define CONTEXT_DETAILS                                                                         \
  "Empty means that the attribute is not added. An attribute of this name in the arguments of " \
  "outbox_emit takes precedence. SET LOCAL sets it for one transaction. A value may have up "   \
  "to 1024 bytes."
constexpr char kContextDetails[] = CONTEXT_DETAILS;
constexpr char kTraceDetails[] = CONTEXT_DETAILS
    " Google's clients read and write a trace under the names googclient_traceparent and "
    "googclient_tracestate. An event that has traceparent or tracestate is sent with the "
    "corresponding one of these names, too, and the reverse, unless the message already has 100 "
    "attributes. So a handler finds the trace of a message from one of Google's clients in "
    "event.attributes->>'traceparent'. The trace is kept through dead letters and redrive.";
#undef CONTEXT_DETAILS

const StringSetting kStrings[] = {
    {"postbox.endpoint", "Sets the address of the Pub/Sub service.",
     "If it is empty, the address in the environment variable PUBSUB_EMULATOR_HOST of the server "
     "is used, in plain text; without that variable, Google's (pubsub.googleapis.com). "
     "http://host:port is plain text without credentials, for an emulator. https://host:port and "
     "host:port are TLS with Google's application default credentials or those of the publication; "
     "with https:// the default port is 443. An IPv6 address is written in brackets. Pub/Sub keeps "
     "order only among messages that are published in one region, so workers in several regions "
     "need a locational endpoint, such as europe-west1-pubsub.googleapis.com:443.",
     &values.endpoint, PGC_SIGHUP, CheckHook<CheckEndpoint>, GUC_SUPERUSER_ONLY},
    {"postbox.project_id",
     "Sets the Google Cloud project that completes short names of topics and subscriptions.",
     "With my-project, the topic orders is projects/my-project/topics/orders. Full resource names "
     "do not need it. If it is empty, short names cannot be used.",
     &values.project_id, PGC_SUSET, CheckHook<CheckProject>, 0},
    {"postbox.quota_project",
     "Sets the Google Cloud project that is charged for requests to Pub/Sub.",
     "Empty means the quota project of the credentials.", &values.quota_project, PGC_SUSET,
     CheckHook<CheckProject>, 0},
    {"postbox.otlp_endpoint",
     "Sets the address of the OpenTelemetry collector to which publisher workers send traces.",
     "http://host:port is plain text, https://host:port is TLS; the default port is 4317. The "
     "protocol is OTLP over gRPC. Empty means no traces. Only events whose traceparent says that "
     "their trace is sampled have spans. Spans that the collector does not take are dropped; "
     "events never wait for them.",
     &values.otlp_endpoint, PGC_SIGHUP, CheckHook<CheckOtlpEndpoint>, GUC_SUPERUSER_ONLY},
    {"postbox.failpoint", "Sets failpoints, for tests of Postbox.",
     "The form is name=action,name=action. The actions are kill, error and pause. Empty means no "
     "failpoint. Not for production.",
     &values.failpoint, PGC_SIGHUP, CheckHook<pubsub::CheckFailpointList>,
     GUC_NOT_IN_SAMPLE | GUC_SUPERUSER_ONLY},
    {"postbox.default_outbox", "Sets the outbox that outbox_emit writes to when none is named.",
     "The form is table or schema.table. Empty means the only outbox that the current user owns. "
     "A user who owns none gets the only outbox with a publication that the user may INSERT into; "
     "if there is none, the only outbox that the user may INSERT into. In a function that runs as "
     "another role than its caller, such as a SECURITY DEFINER function or a handler, a value set "
     "by the caller (SET, connection options, ALTER ROLE) is ignored. A value of a SET clause of "
     "the function, of ALTER DATABASE or of the server's configuration is used.",
     &values.default_outbox, PGC_USERSET, CheckDefaultOutbox, 0, AssignDefaultOutbox},
    {"postbox.correlation_id", "Sets the attribute correlation_id of emitted events.",
     kContextDetails, &values.correlation_id, PGC_USERSET, CheckHook<CheckAttributeValue>, 0},
    {"postbox.causation_id", "Sets the attribute causation_id of emitted events.", kContextDetails,
     &values.causation_id, PGC_USERSET, CheckHook<CheckAttributeValue>, 0},
    {"postbox.user_id", "Sets the attribute user_id of emitted events.", kContextDetails,
     &values.user_id, PGC_USERSET, CheckHook<CheckAttributeValue>, 0},
    {"postbox.traceparent", "Sets the attribute traceparent (W3C Trace Context) of emitted events.",
     kTraceDetails, &values.traceparent, PGC_USERSET, CheckHook<CheckAttributeValue>, 0},
    {"postbox.source_service", "Sets the attribute source_service of emitted events.",
     kContextDetails, &values.source_service, PGC_USERSET, CheckHook<CheckAttributeValue>, 0},
    {"postbox.source_version", "Sets the attribute source_version of emitted events.",
     kContextDetails, &values.source_version, PGC_USERSET, CheckHook<CheckAttributeValue>, 0},
};

const IntSetting kInts[] = {
    {"postbox.publishers",
     "Sets the number of publisher workers for each database that has the extension.",
     "0 stops publishing. ALTER DATABASE ... SET gives a database a separate number; its workers "
     "are restarted when that commits. SET in a session has no effect.",
     &values.publishers, 1, 0, 32, 0, PGC_SUSET},
    {"postbox.max_workers",
     "Sets the maximum number of publisher workers of all databases together.",
     "Publisher workers are background workers and count against max_worker_processes, which "
     "parallel queries and logical replication also use. If fewer workers are allowed than the "
     "databases need, the databases are served in turn.",
     &values.max_workers, kMaxWorkers, 1, kMaxWorkers, 0},
    {"postbox.poll_interval",
     "Sets the interval at which a publisher worker looks for events that no commit announced.",
     "The commit of an event wakes the workers. Exceptions are plain INSERTs into a table outbox "
     "that was made by create_outbox, and rows of a log that keep their txid and seq.",
     &values.poll_interval, 1000, 10, 60000, GUC_UNIT_MS},
    {"postbox.claim_batch_size",
     "Sets the maximum number of events that a publisher worker claims at once from a table "
     "outbox.",
     nullptr, &values.claim_batch_size, 500, 1, 1000, 0},
    {"postbox.read_chunk_size",
     "Sets the maximum number of events that a publisher worker reads at once from a log outbox.",
     nullptr, &values.read_chunk_size, 2000, 1, 100000, 0},
    {"postbox.checkpoint_interval",
     "Sets the minimum time between two checkpoints of a position in a log outbox.",
     "A checkpoint stores how far the log has been published. After a crash, events published "
     "since the last checkpoint are sent again; sent_again_at_most of postbox.publication_status "
     "counts them.",
     &values.checkpoint_interval, 200, 10, 60000, GUC_UNIT_MS},
    {"postbox.lease_timeout",
     "Sets the age at which the claim of a running publisher worker counts as abandoned.",
     "Another worker then takes over the claimed events. For a lane of a log outbox, the age "
     "is the time since its worker last reported. The claims of a worker that has ended are taken "
     "over at once.",
     &values.lease_timeout, 300, 10, 86400, GUC_UNIT_S},
    {"postbox.publish_timeout",
     "Sets how long a publisher worker tries to publish an event before it releases the event.",
     "The time begins when the event is first sent. A released event is claimed and sent again "
     "later. The effective value is at most half of postbox.lease_timeout.",
     &values.publish_timeout, 60, 1, 600, GUC_UNIT_S},
    {"postbox.max_outstanding_messages",
     "Sets the maximum number of messages that a publisher worker has in flight.",
     "With several publications a worker may have up to a quarter more in flight, because each "
     "publication has a guaranteed share.",
     &values.max_outstanding_messages, 20000, 1, 1000000, 0},
    {"postbox.max_outstanding_bytes",
     "Sets the maximum size of the messages that a publisher worker has in flight.",
     "With several publications a worker may have up to a quarter more in flight, because each "
     "publication has a guaranteed share.",
     &values.max_outstanding_bytes, 65536, 1024, 4 * 1024 * 1024, GUC_UNIT_KB},
    {"postbox.channels",
     "Sets the maximum number of connections of each publisher worker to Pub/Sub.",
     "Connections are opened when they are needed. Each carries 100 requests at a time.",
     &values.channels, 64, 1, 256, 0},
    {"postbox.maintenance_interval",
     "Sets the interval at which a publisher worker removes what is older than the retention.",
     "This applies to outboxes and inboxes. It must be less than a quarter of the retention of "
     "each log outbox; otherwise some events are kept longer.",
     &values.maintenance_interval, 60, 1, 86400, GUC_UNIT_S},
    {"postbox.restart_delay", "Sets the delay before a failed publisher worker is started again.",
     "The delay doubles with each failure in a row, up to 60 s.", &values.restart_delay, 1000, 10,
     60000, GUC_UNIT_MS},
    {"postbox.time_scale",
     "Sets the scale of the built-in limits and pauses of publisher workers, for tests of Postbox.",
     "The unit is percent. It applies to built-in limits and pauses, to the turns of databases "
     "that share too few workers, and to postbox.lease_timeout. With 20, a step on an outbox may "
     "take a fifth of a second instead of a second, and a lease ends after a fifth of "
     "postbox.lease_timeout. Values above 100 suit a server that runs slowly, for example under a "
     "profiler.",
     &values.time_scale, 100, 20, 10000, GUC_NOT_IN_SAMPLE},
};

// The only setting of its type.
const config_enum_entry kCompressions[] = {
    {"off", static_cast<int>(Compression::kOff), false},
    {"gzip", static_cast<int>(Compression::kGzip), false},
    {nullptr, 0, false},
};

}  // namespace

void DefineSettings() {
  UseSettings(&values);
  for (const StringSetting& setting : kStrings) {
    DefineCustomStringVariable(setting.name, setting.description, setting.details, setting.value,
                               "", setting.context, setting.flags, setting.check, setting.assign,
                               nullptr);
  }
  for (const IntSetting& setting : kInts) {
    DefineCustomIntVariable(setting.name, setting.description, setting.details, setting.value,
                            setting.initial, setting.least, setting.greatest, setting.context,
                            setting.flags, nullptr, nullptr, nullptr);
  }
  DefineCustomBoolVariable(
      "postbox.mute_changes", "Keeps change triggers from emitting events in this transaction.",
      "Use SET LOCAL, or the clause SET postbox.mute_changes = on of a SECURITY DEFINER function, "
      "which ends with the function. It applies to INSERT, UPDATE, DELETE and TRUNCATE of tables "
      "with change triggers. Both the role that sets it and the role that makes the change must "
      "own the table, or have the rights of its owner; else the change is refused (42501). This "
      "includes changes by triggers and by cascades of foreign keys. At COMMIT a NOTICE and "
      "the server log say how many rows of which table were changed without events; the log also "
      "names the role that set it. "
      "A value that an earlier transaction has left in the session makes the next change fail. "
      "A value for a role or a database is ignored with a WARNING, and the configuration file "
      "cannot have one.",
      &values.mute_changes, false, PGC_USERSET, GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE,
      CheckMuteChanges, AssignMuteChanges, nullptr);
  DefineCustomEnumVariable(
      "postbox.compression", "Sets the compression of requests of publisher workers to Pub/Sub.",
      "Requests of less than 240 bytes are never compressed. Pub/Sub counts and stores messages "
      "uncompressed.",
      &values.compression, static_cast<int>(Compression::kOff), kCompressions, PGC_SIGHUP, 0,
      nullptr, nullptr, nullptr);
  ReserveGucPrefix("postbox");
}

const MuteOrigin& OriginOfMute() { return mute_origin; }

bool DefaultOutboxCounts() {
  // PGC_S_DATABASE and what is before it is set by the owner of the database or a superuser.
  return !InLocalUserIdChange() || default_outbox_origin.source <= PGC_S_DATABASE ||
         default_outbox_origin.role == GetUserId();
}

}  // namespace postbox
