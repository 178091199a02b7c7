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

const StringSetting kStrings[] = {
    {"postbox.endpoint", "Sets the address of the Pub/Sub service.",
     "Empty means Google, or PUBSUB_EMULATOR_HOST of the server's environment. http://host:port is "
     "plain text without credentials; https://host:port and host:port are TLS with Google's "
     "application default credentials.",
     &values.endpoint, PGC_SIGHUP, CheckHook<CheckEndpoint>, GUC_SUPERUSER_ONLY},
    {"postbox.project_id", "Sets the Google Cloud project that completes short topic names.",
     nullptr, &values.project_id, PGC_SUSET, CheckHook<CheckProject>, 0},
    {"postbox.quota_project", "Sets the Google Cloud project that is charged for the requests.",
     "Empty means the project of the credentials.", &values.quota_project, PGC_SUSET,
     CheckHook<CheckProject>, 0},
    {"postbox.failpoint", "Sets failpoints, for developers of Postbox.",
     "The form is name=action,name=action; the actions are kill, error and pause.",
     &values.failpoint, PGC_SIGHUP, CheckHook<pubsub::CheckFailpointList>,
     GUC_NOT_IN_SAMPLE | GUC_SUPERUSER_ONLY},
    {"postbox.default_outbox", "Sets the outbox that outbox_emit writes to when none is named.",
     "Empty means the only outbox that the current user owns, else the only one with a publication "
     "that it may insert into, else the only one that it may insert into. In a function that runs "
     "as another user than its caller, a value that the caller has "
     "set does not count.",
     &values.default_outbox, PGC_USERSET, CheckDefaultOutbox, 0, AssignDefaultOutbox},
    {"postbox.correlation_id", "Sets the attribute correlation_id of emitted events.", nullptr,
     &values.correlation_id, PGC_USERSET, CheckHook<CheckAttributeValue>, 0},
    {"postbox.causation_id", "Sets the attribute causation_id of emitted events.", nullptr,
     &values.causation_id, PGC_USERSET, CheckHook<CheckAttributeValue>, 0},
    {"postbox.user_id", "Sets the attribute user_id of emitted events.", nullptr, &values.user_id,
     PGC_USERSET, CheckHook<CheckAttributeValue>, 0},
    {"postbox.traceparent", "Sets the attribute traceparent (W3C Trace Context) of emitted events.",
     nullptr, &values.traceparent, PGC_USERSET, CheckHook<CheckAttributeValue>, 0},
    {"postbox.source_service", "Sets the attribute source_service of emitted events.", nullptr,
     &values.source_service, PGC_USERSET, CheckHook<CheckAttributeValue>, 0},
    {"postbox.source_version", "Sets the attribute source_version of emitted events.", nullptr,
     &values.source_version, PGC_USERSET, CheckHook<CheckAttributeValue>, 0},
};

const IntSetting kInts[] = {
    {"postbox.publishers",
     "Sets the number of publisher workers for each database that has the extension.",
     "0 stops publishing. ALTER DATABASE ... SET gives a database another number. In a session it "
     "has no effect.",
     &values.publishers, 1, 0, 32, 0, PGC_SUSET},
    {"postbox.max_workers",
     "Sets the maximum number of publisher workers of all databases together.",
     "They are background workers of the server, of which max_worker_processes are possible; "
     "parallel queries and logical replication need some, too. If there are fewer than the "
     "databases need, these are served in turn.",
     &values.max_workers, kMaxWorkers, 1, kMaxWorkers, 0},
    {"postbox.poll_interval",
     "Sets the interval at which a publisher looks for events that no commit announced.",
     "Plain INSERTs and prepared transactions do not announce their events.", &values.poll_interval,
     1000, 10, 60000, GUC_UNIT_MS},
    {"postbox.claim_batch_size",
     "Sets the maximum number of events that a publisher claims at once.", nullptr,
     &values.claim_batch_size, 500, 1, 1000, 0},
    {"postbox.read_chunk_size",
     "Sets the maximum number of events that a publisher reads from a log outbox at once.", nullptr,
     &values.read_chunk_size, 2000, 1, 100000, 0},
    {"postbox.checkpoint_interval",
     "Sets the minimum time between two checkpoints of a position in a log outbox.",
     "After a crash, events published since the last checkpoint are sent again.",
     &values.checkpoint_interval, 200, 10, 60000, GUC_UNIT_MS},
    {"postbox.lease_timeout",
     "Sets the time after which a claimed event may be claimed by another publisher.",
     "The lease of a publisher that is known to have ended ends at once.", &values.lease_timeout,
     300, 10, 86400, GUC_UNIT_S},
    {"postbox.publish_timeout", "Sets the time for which a publisher tries to send an event.",
     "It is never longer than half of postbox.lease_timeout. Then the event is released.",
     &values.publish_timeout, 60, 1, 600, GUC_UNIT_S},
    {"postbox.max_outstanding_messages",
     "Sets the maximum number of messages that a publisher has in flight.", nullptr,
     &values.max_outstanding_messages, 20000, 1, 1000000, 0},
    {"postbox.max_outstanding_bytes",
     "Sets the maximum size of the messages that a publisher has in flight.", nullptr,
     &values.max_outstanding_bytes, 65536, 1024, 4 * 1024 * 1024, GUC_UNIT_KB},
    {"postbox.channels", "Sets the maximum number of connections of each publisher to Pub/Sub.",
     "They are opened when they are needed, each for 100 requests at a time.", &values.channels, 64,
     1, 256, 0},
    {"postbox.maintenance_interval",
     "Sets the interval at which a publisher deletes events older than the retention.", nullptr,
     &values.maintenance_interval, 60, 1, 86400, GUC_UNIT_S},
    {"postbox.restart_delay", "Sets the delay before a failed publisher is started again.",
     "The delay doubles with every failure, up to 60 s.", &values.restart_delay, 1000, 10, 60000,
     GUC_UNIT_MS},
    {"postbox.time_scale",
     "Sets how long the publishers' own limits and pauses last, for developers of Postbox.",
     "In percent: with 20, a step on an outbox may take a fifth of a second instead of one, and a "
     "lease ends after a fifth of postbox.lease_timeout. More than 100 suits a server that runs "
     "slowly, as under a profiler.",
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
      "For the owner of the changed table. The server log says how many rows were changed without "
      "events.",
      &values.mute_changes, false, PGC_USERSET, GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE,
      CheckMuteChanges, AssignMuteChanges, nullptr);
  DefineCustomEnumVariable(
      "postbox.compression", "Sets what a publisher compresses its requests to Pub/Sub with.",
      "Small requests are never compressed.", &values.compression,
      static_cast<int>(Compression::kOff), kCompressions, PGC_SIGHUP, 0, nullptr, nullptr, nullptr);
  ReserveGucPrefix("postbox");
}

const MuteOrigin& OriginOfMute() { return mute_origin; }

bool DefaultOutboxCounts() {
  // PGC_S_DATABASE and what is before it is set by the owner of the database or a superuser.
  return !InLocalUserIdChange() || default_outbox_origin.source <= PGC_S_DATABASE ||
         default_outbox_origin.role == GetUserId();
}

}  // namespace postbox
