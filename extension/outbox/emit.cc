// postbox.outbox_emit: stores an event in the caller's transaction.
//
// Rights. INSERT on the outbox is the permission to emit. The row is inserted as the caller and
// under the caller's search_path, so that column privileges, row security and triggers count as for
// a plain INSERT. What the caller needs no rights on (the version counter, the search for a stored
// event) is done as the owner of the outbox, under a fixed search_path.
//
// Order. Rule: within an aggregate, seq, version and commit have the same order. So the row of the
// aggregate in the version counter is locked first, and the sequence number is taken second.
//
//  1. T1 counts the aggregate's version up (INSERT ... ON CONFLICT DO UPDATE): it now has the lock
//     on the counter's row, until it ends.
//  2. T2 emits for the same aggregate. Its statement waits for T1.
//  3. T1 takes its seq, inserts, and commits. T2 goes on: it sees the version of T1 and takes the
//     next one, and after that a greater seq.
//     If T1 rolls back instead, T2 sees the version before T1, and takes the one that T1 had. The
//     seq of T1 is a gap, which readers tolerate.
// In the other order, T2 could take its seq before T1 and its version after.
//
// A caller that gives a version of its own to a `log` outbox is trusted to have locked its
// aggregate: the event costs one INSERT, and no counter. A `table` outbox refuses a version that is
// not greater than the last one.
//
// source_event_id makes the event_id, so that an event emitted twice for one source is stored once.
// Rule: look, lock, look again.
//
//  1. T1 and T2 derive the same event, and neither sees the other's row.
//  2. T1 locks the counter's row of the aggregate; T2 waits for it.
//  3. T1 stores the event and commits. T2 has the lock, looks again with a new snapshot, finds the
//     event, and returns it. No version was used.
//
// event_id names an event that must not be in the outbox yet. A `table` has a unique index on it,
// and so has a `log` of 0.1. The index of a `log` is unique within a generation, and all are looked
// at before. (Two transactions that give one id at the same time, one of which began before a new
// generation and the other after, do not see each other.)
//
// On disk are the event and, unless the log's caller counts, the counter's row: in the tables of
// the outbox, both written by the caller's transaction. In memory is the flag that wakes the
// workers at commit (server/wakeup.h).
//
// Cost: an event of a log that brings its version is the executor's work for one INSERT and little
// else. It needs no SPI and no change of search_path, and what is the same for every event is made
// once in a session.
//
// What Pub/Sub would refuse is refused here (proto/rules/message_check.h), on the message as it
// will be sent.
#include "extension/base/act_as.h"
#include "extension/base/guard.h"
#include "extension/base/spi.h"
#include "extension/base/uuid.h"
#include "extension/outbox/log_relations.h"
#include "extension/outbox/version_counter.h"
#include "extension/server/shortage.h"
#include "extension/server/wakeup.h"
#include "extension/shared/settings.h"
#include "proto/rules/attributes.h"
#include "proto/rules/message_check.h"

extern "C" {
#include <commands/sequence.h>
#include <storage/lmgr.h>
#include <tcop/utility.h>
#include <utils/typcache.h>
}

namespace postbox {
namespace {

// The parameters of outbox_emit, in order.
enum Argument {
  kAggregateType,
  kAggregateId,
  kEventType,
  kPayload,
  kVersion,
  kSchemaVersion,
  kAttributes,
  kEventId,
  kOccurredAt,
  kSourceEventId,
  kOutbox,
};

// A text in PostgreSQL's memory, in the encoding of the database.
struct Text {
  Datum datum;
  std::string_view view;
};

struct EmittedEvent {
  Text aggregate_type;
  Text aggregate_id;
  Text event_type;
  Text schema_version;
  Datum payload;  // bytea, exactly the data of the message
  std::string_view data;
  std::optional<int64> version;
  std::optional<pg_uuid_t> id;
  bool id_is_given;
  std::optional<Text> source_event_id;
  TimestampTz occurred_at;
  // The caller's attributes and those of the context, in UTF-8.
  std::vector<std::pair<std::string_view, std::string_view>> extra;
};

struct Receipt {
  pg_uuid_t id;
  int64 version;
};

std::string_view View(Datum varlena_datum) {
  const auto* value = reinterpret_cast<const varlena*>(DatumGetPointer(varlena_datum));
  return {VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value)};
}

Text ToText(Datum datum) {
  const Datum plain = Pg([&] { return PointerGetDatum(DatumGetTextPP(datum)); });
  return {plain, View(plain)};
}

// The text in UTF-8: a copy if the encoding of the database is another one, otherwise the text
// itself.
std::string_view ToUtf8(std::string_view text) {
  if (GetDatabaseEncoding() == PG_UTF8) return text;
  const char* converted =
      Pg([&] { return pg_server_to_any(text.data(), static_cast<int>(text.size()), PG_UTF8); });
  return converted == text.data() ? text : std::string_view(converted);
}

Text RequiredText(FunctionCallInfo fcinfo, Argument argument, const char* name) {
  if (fcinfo->args[argument].isnull) {
    Throw(ERRCODE_NULL_VALUE_NOT_ALLOWED, std::string(name) + " may not be null");
  }
  Text text = ToText(fcinfo->args[argument].value);
  if (text.view.empty())
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, std::string(name) + " may not be empty");
  return text;
}

enum class AttributeFault { kNone, kNoObject, kNull, kNested };

struct AttributeList {
  AttributeFault fault;
  const char* culprit;  // the attribute with the fault
  int count;
  struct {
    const char* key;
    int key_length;
    const char* value;
    int value_length;
  } * items;
};

// Reads a JSON object of scalars. Strings are taken as they are, numbers and booleans as their
// text.
AttributeList ReadAttributes(Datum datum) {
  Jsonb* jsonb = DatumGetJsonbP(datum);
  AttributeList list{};
  if (!JB_ROOT_IS_OBJECT(jsonb)) {
    list.fault = AttributeFault::kNoObject;
    return list;
  }
  if (JB_ROOT_COUNT(jsonb) == 0) return list;
  list.items =
      static_cast<decltype(list.items)>(palloc0(sizeof(*list.items) * (JB_ROOT_COUNT(jsonb) + 1)));
  JsonbIterator* iterator = JsonbIteratorInit(&jsonb->root);
  JsonbValue value;
  JsonbIteratorToken token;
  while ((token = JsonbIteratorNext(&iterator, &value, true)) != WJB_DONE) {
    auto& item = list.items[list.count];
    if (token == WJB_KEY) {
      item.key = value.val.string.val;
      item.key_length = value.val.string.len;
    } else if (token == WJB_VALUE) {
      switch (value.type) {
        case jbvString:
          item.value = value.val.string.val;
          item.value_length = value.val.string.len;
          break;
        case jbvNumeric:
          item.value =
              DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(value.val.numeric)));
          item.value_length = static_cast<int>(std::strlen(item.value));
          break;
        case jbvBool:
          item.value = value.val.boolean ? "true" : "false";
          item.value_length = static_cast<int>(std::strlen(item.value));
          break;
        default:
          list.fault = value.type == jbvNull ? AttributeFault::kNull : AttributeFault::kNested;
          list.culprit = pnstrdup(item.key, item.key_length);
          return list;
      }
      ++list.count;
    }
  }
  return list;
}

// The value of a context setting, or an empty text.
std::string_view ContextValue(std::string_view attribute) {
  const Settings& current = settings();
  if (attribute == pubsub::kCorrelationId) return current.correlation_id;
  if (attribute == pubsub::kCausationId) return current.causation_id;
  if (attribute == pubsub::kUserId) return current.user_id;
  if (attribute == pubsub::kTraceparent) return current.traceparent;
  if (attribute == pubsub::kSourceService) return current.source_service;
  return current.source_version;
}

void CollectAttributes(FunctionCallInfo fcinfo, EmittedEvent* event) {
  if (!fcinfo->args[kAttributes].isnull) {
    const AttributeList list = Pg([&] { return ReadAttributes(fcinfo->args[kAttributes].value); });
    switch (list.fault) {
      case AttributeFault::kNone:
        break;
      case AttributeFault::kNoObject:
        Throw(ERRCODE_INVALID_PARAMETER_VALUE, "attributes must be a JSON object", "",
              "For example '{\"tenant\": \"t1\"}'.");
      case AttributeFault::kNull:
        Throw(ERRCODE_INVALID_PARAMETER_VALUE,
              std::string("attribute \"") + list.culprit + "\" is null",
              "An attribute is a string, a number or a boolean.", "Leave it out.");
      case AttributeFault::kNested:
        Throw(ERRCODE_INVALID_PARAMETER_VALUE,
              std::string("attribute \"") + list.culprit + "\" is an object or an array",
              "An attribute is a string, a number or a boolean.",
              "Put structured values into the payload.");
    }
    for (int i = 0; i < list.count; ++i) {
      const auto& item = list.items[i];
      const std::string_view key(item.key, static_cast<size_t>(item.key_length));
      if (pubsub::IsStandardAttribute(key)) {
        Throw(ERRCODE_INVALID_PARAMETER_VALUE,
              "attribute \"" + std::string(key) + "\" is one that every event has",
              "Postbox sets event_id, event_type, aggregate_id, aggregate_type, version, "
              "occurred_at and "
              "schema_version.",
              "Use the parameter " + std::string(key) + " of outbox_emit.");
      }
      event->extra.emplace_back(ToUtf8(key),
                                ToUtf8({item.value, static_cast<size_t>(item.value_length)}));
    }
  }
  const size_t of_caller = event->extra.size();
  for (const std::string_view name : pubsub::kContextAttributes) {
    const std::string_view value = ContextValue(name);
    const auto has_name = [&](const auto& attribute) { return attribute.first == name; };
    if (!value.empty() &&
        std::none_of(event->extra.begin(), event->extra.begin() + of_caller, has_name)) {
      event->extra.emplace_back(name, ToUtf8(value));
    }
  }
}

// An empty object, made once in a session.
Datum NoAttributes() {
  static const Datum none = Pg([] {
    const MemoryContext before = MemoryContextSwitchTo(TopMemoryContext);
    const Datum object = DirectFunctionCall1(jsonb_in, CStringGetDatum("{}"));
    MemoryContextSwitchTo(before);
    return object;
  });
  return none;
}

// What goes into the column: strings only, in the encoding of the database.
Datum AttributesDatum(const EmittedEvent& event) {
  const auto& extra = event.extra;
  if (extra.empty()) return NoAttributes();
  return Pg([&] {
    const auto push = [](JsonbParseState** state, JsonbIteratorToken token, std::string_view utf8) {
      JsonbValue value;
      value.type = jbvString;
      value.val.string.val = pg_any_to_server(utf8.data(), static_cast<int>(utf8.size()), PG_UTF8);
      value.val.string.len = value.val.string.val == utf8.data()
                                 ? static_cast<int>(utf8.size())
                                 : static_cast<int>(std::strlen(value.val.string.val));
      return pushJsonbValue(state, token, &value);
    };
    JsonbParseState* state = nullptr;
    pushJsonbValue(&state, WJB_BEGIN_OBJECT, nullptr);
    for (const auto& attribute : extra) {
      push(&state, WJB_KEY, attribute.first);
      push(&state, WJB_VALUE, attribute.second);
    }
    return JsonbPGetDatum(JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, nullptr)));
  });
}

constexpr int64 kMicrosFrom1970To2000 =
    static_cast<int64>(POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;

void CheckOccurredAt(TimestampTz occurred_at) {
  if (!TIMESTAMP_NOT_FINITE(occurred_at) &&
      occurred_at >= pubsub::kMinRfc3339Micros - kMicrosFrom1970To2000 &&
      occurred_at <= pubsub::kMaxRfc3339Micros - kMicrosFrom1970To2000) {
    return;
  }
  Throw(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE, "occurred_at is out of range",
        "It is sent in the format of RFC 3339, which has the years 0001 to 9999.");
}

EmittedEvent ReadEvent(FunctionCallInfo fcinfo, Datum payload) {
  EmittedEvent event{};
  event.aggregate_type = RequiredText(fcinfo, kAggregateType, "aggregate_type");
  event.aggregate_id = RequiredText(fcinfo, kAggregateId, "aggregate_id");
  event.event_type = RequiredText(fcinfo, kEventType, "event_type");
  event.payload = payload;
  event.data = View(payload);
  const NullableDatum* arguments = fcinfo->args;
  if (!arguments[kVersion].isnull) {
    event.version = DatumGetInt64(arguments[kVersion].value);
    if (*event.version <= 0) {
      Throw(ERRCODE_INVALID_PARAMETER_VALUE,
            "version " + std::to_string(*event.version) + " is not positive",
            "Versions of an aggregate begin at 1.", "Leave version out to let the outbox count.");
    }
  }
  event.schema_version = arguments[kSchemaVersion].isnull
                             ? ToText(Pg([] { return CStringGetTextDatum("v1"); }))
                             : ToText(arguments[kSchemaVersion].value);
  event.id_is_given = !arguments[kEventId].isnull;
  if (event.id_is_given) event.id = *DatumGetUUIDP(arguments[kEventId].value);
  if (!arguments[kSourceEventId].isnull) {
    event.source_event_id = RequiredText(fcinfo, kSourceEventId, "source_event_id");
    if (event.id.has_value()) {
      Throw(ERRCODE_INVALID_PARAMETER_VALUE, "event_id and source_event_id exclude each other",
            "The id of an event that has a source is made from the source.",
            "Leave one of them out.");
    }
    event.id = DerivedEventId(ToUtf8(event.source_event_id->view), ToUtf8(event.event_type.view),
                              ToUtf8(event.aggregate_type.view), ToUtf8(event.aggregate_id.view));
  } else if (!event.id.has_value()) {
    event.id = UuidV7();
  }
  event.occurred_at = arguments[kOccurredAt].isnull
                          ? GetCurrentTransactionStartTimestamp()
                          : DatumGetTimestampTz(arguments[kOccurredAt].value);
  CheckOccurredAt(event.occurred_at);
  CollectAttributes(fcinfo, &event);
  return event;
}

// Whether the message is so far below every limit that it needs no check: short valid texts, no
// attributes but the standard ones, and a payload of at most half of a request.
bool IsSurelyWithinLimits(const EmittedEvent& event) {
  constexpr size_t kShort = std::min(pubsub::kMaxOrderingKeyBytes, pubsub::kMaxAttributeValueBytes);
  if (GetDatabaseEncoding() != PG_UTF8 || !event.extra.empty()) return false;
  for (const Text* text :
       {&event.aggregate_type, &event.aggregate_id, &event.event_type, &event.schema_version}) {
    if (text->view.size() > kShort || !pubsub::IsValidUtf8(text->view)) return false;
  }
  return event.data.size() <= pubsub::kMaxRequestBytes / 2;
}

// Refuses what Pub/Sub would refuse. Here the transaction that caused it fails; later a key would
// stop.
void CheckMessage(const EmittedEvent& event, int64 version) {
  if (IsSurelyWithinLimits(event)) return;
  const std::string id = UuidText(*event.id);
  const std::string_view key = ToUtf8(event.aggregate_id.view);
  const pubsub::StandardAttributes standard(
      {.event_id = id,
       .event_type = ToUtf8(event.event_type.view),
       .aggregate_id = key,
       .aggregate_type = ToUtf8(event.aggregate_type.view),
       .version = version,
       .occurred_at_micros = event.occurred_at + kMicrosFrom1970To2000,
       .schema_version = ToUtf8(event.schema_version.view)});
  const std::vector<pubsub::AttributeView> attributes = standard.With(event.extra);
  const auto problem = pubsub::CheckMessage(event.data, attributes, key);
  if (!problem.has_value()) return;
  int sqlstate = ERRCODE_INVALID_PARAMETER_VALUE;
  if (problem->kind == pubsub::MessageProblem::Kind::kInvalidUtf8)
    sqlstate = ERRCODE_CHARACTER_NOT_IN_REPERTOIRE;
  if (problem->kind == pubsub::MessageProblem::Kind::kLimitExceeded)
    sqlstate = ERRCODE_PROGRAM_LIMIT_EXCEEDED;
  Throw(sqlstate, problem->what, problem->limit, problem->hint);
}

Aggregate AggregateOf(const EmittedEvent& event) {
  return {event.aggregate_type.datum, event.aggregate_id.datum};
}

// Takes the version of the event, which locks the aggregate: the next transaction that emits for it
// waits for this one. Returns 0 if the seq is going to be the version.
int64 VersionOf(Outbox* outbox, const EmittedEvent& event) {
  const Aggregate aggregate = AggregateOf(event);
  if (outbox->facts().columns.VersionIsSeq()) {
    if (event.version.has_value()) {
      Throw(ERRCODE_FEATURE_NOT_SUPPORTED,
            "outbox \"" + outbox->facts().name + "\" has no column for versions",
            "The version of its events is their seq.", "Leave version out.");
    }
    LockAggregate(outbox, aggregate);
    return 0;
  }
  if (!event.version.has_value()) return CountVersion(outbox, aggregate);
  if (outbox->facts().is_log) return *event.version;
  TakeVersion(outbox, aggregate, *event.version);
  return *event.version;
}

std::optional<Receipt> FindEvent(Outbox* outbox, const EmittedEvent& event) {
  pg_uuid_t id = *event.id;
  Datum value = UUIDPGetDatum(&id);
  if (outbox->Run(OutboxStatement::kFindEvent, &value) == 0) return std::nullopt;
  return Receipt{id, Int64Column(0, 1)};
}

std::string StoredMessage(const OutboxFacts& facts, const EmittedEvent& event) {
  return "event " + UuidText(*event.id) + " is in outbox \"" + facts.name + "\" already";
}
constexpr char kStoredHint[] =
    "Leave event_id out to get a new id. To emit an event once whatever is repeated, give "
    "source_event_id.";

// Whether an id that the caller has given has to be looked up in all generations of the log.
bool MustLookUp(const OutboxFacts& facts, const EmittedEvent& event) {
  return event.id_is_given && facts.is_log && facts.primary_key.empty();
}

void Insert(Outbox* outbox, const EmittedEvent& event, int64 seq, int64 version) {
  pg_uuid_t id = *event.id;
  const OutboxFacts& facts = outbox->facts();
  std::array<Datum, 13> values = {
      UUIDPGetDatum(&id),         Int64GetDatum(seq),
      event.aggregate_type.datum, event.aggregate_id.datum,
      event.event_type.datum,     Int64GetDatum(version),
      event.schema_version.datum, event.payload,
      AttributesDatum(event),     TimestampTzGetDatum(event.occurred_at)};
  if (facts.generation_span > 0) {
    values[10] =
        UInt64GetDatum(U64FromFullTransactionId(Pg([] { return GetTopFullTransactionId(); })));
    values[11] =
        Int16GetDatum(GenerationOf(GetCurrentTransactionStartTimestamp(), facts.generation_span));
    values[12] = Int32GetDatum(ClusterOrigin());
  }
  try {
    if (outbox->Insert(values.data()) != 0) return;
  } catch (PostgresError& error) {
    // The partitions of a log have primary keys of their own names.
    if (error.sqlstate == ERRCODE_UNIQUE_VIOLATION &&
        (facts.is_log ? error.constraint_name.ends_with("_pkey")
                      : error.constraint_name == facts.primary_key)) {
      error.message = StoredMessage(facts, event);
      error.hint = kStoredHint;
    }
    throw;
  }
  Throw(ERRCODE_TRIGGERED_ACTION_EXCEPTION,
        "a trigger of outbox \"" + outbox->facts().name + "\" took the event away",
        "An event that outbox_emit has accepted must not be lost.",
        "Let the trigger return the row.");
}

// Whether the caller may emit. The INSERT itself checks again, by column and by row.
void CheckInsertPrivilege(const OutboxFacts& facts) {
  Pg([&] {
    if (pg_class_aclcheck(facts.relation, GetUserId(), ACL_INSERT) == ACLCHECK_OK) return;
    if (pg_attribute_aclcheck_all(facts.relation, GetUserId(), ACL_INSERT, ACLMASK_ANY) ==
        ACLCHECK_OK)
      return;
    aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_TABLE, get_rel_name(facts.relation));
  });
}

// What has to be done as the owner of the outbox before the event is stored. Sets its version (see
// VersionOf), or returns the event that is already stored.
std::optional<Receipt> Prepare(Outbox* outbox, const EmittedEvent& event, int64* version) {
  if (!event.version.has_value() && !event.source_event_id.has_value() &&
      !MustLookUp(outbox->facts(), event)) {
    *version = CountVersionInMemory(*outbox, AggregateOf(event));
    if (*version != 0) return std::nullopt;
  }
  SpiConnection connection;
  FixedSearchPath search_path;
  ActAs owner(outbox->facts().owner);
  if (event.source_event_id.has_value()) {
    if (const auto stored = FindEvent(outbox, event)) return stored;
    LockAggregate(outbox, AggregateOf(event));
    if (const auto stored = FindEvent(outbox, event)) return stored;
  }
  if (MustLookUp(outbox->facts(), event) && FindEvent(outbox, event)) {
    Throw(ERRCODE_UNIQUE_VIOLATION, StoredMessage(outbox->facts(), event), "", kStoredHint);
  }
  *version = VersionOf(outbox, event);
  return std::nullopt;
}

Receipt Emit(FunctionCallInfo fcinfo, const EmittedEvent& event) {
  Oid relation = fcinfo->args[kOutbox].isnull ? DefaultOutbox()
                                              : DatumGetObjectId(fcinfo->args[kOutbox].value);
  if (!OidIsValid(relation)) relation = OnlyOutbox();
  CheckInsertPrivilege(FindOutbox(relation)->facts());
  Pg([&] { LockRelationOid(relation, RowExclusiveLock); });
  const std::shared_ptr<Outbox> outbox = FindOutbox(relation);
  const OutboxFacts& facts = outbox->facts();

  int64 version = event.version.value_or(0);
  // A caller that counts versions for a log has locked its aggregate: one INSERT is all.
  if (!facts.is_log || version == 0 || event.source_event_id.has_value() ||
      MustLookUp(facts, event)) {
    if (const auto stored = Prepare(outbox.get(), event, &version)) return *stored;
  }
  if (version != 0) CheckMessage(event, version);
  const int64 seq = Pg([&] {
    // Workers rely on it: the transaction has its id before it takes a sequence number of a log.
    if (facts.is_log) GetTopTransactionId();
    return nextval_internal(facts.sequence, false);
  });
  if (version == 0) {
    version = seq;
    CheckMessage(event, version);
  }
  Insert(outbox.get(), event, seq, version);
  WarnIfUnserved();
  RequestPublishersAtCommit();
  return Receipt{*event.id, version};
}

Datum EmitAndReturn(FunctionCallInfo fcinfo, Datum payload) {
  Pg([] { PreventCommandIfReadOnly("outbox_emit()"); });
  const EmittedEvent event = ReadEvent(fcinfo, payload);
  Receipt receipt = Emit(fcinfo, event);
  return Pg([&] {
    TupleDesc descriptor = lookup_rowtype_tupdesc(get_func_rettype(fcinfo->flinfo->fn_oid), -1);
    Datum values[] = {UUIDPGetDatum(&receipt.id), event.aggregate_id.datum,
                      Int64GetDatum(receipt.version)};
    bool nulls[] = {false, false, false};
    const Datum row = HeapTupleGetDatum(heap_form_tuple(descriptor, values, nulls));
    ReleaseTupleDesc(descriptor);
    return row;
  });
}

void RequirePayload(FunctionCallInfo fcinfo) {
  if (!fcinfo->args[kPayload].isnull) return;
  Throw(ERRCODE_NULL_VALUE_NOT_ALLOWED, "payload may not be null", "",
        "An event without content has the payload '{}'.");
}

// JSON is sent as its text in UTF-8.
Datum JsonbToBytes(Datum payload) {
  return Pg([&] {
    Jsonb* jsonb = DatumGetJsonbP(payload);
    StringInfoData bytes;
    initStringInfo(&bytes);
    appendStringInfoSpaces(&bytes, VARHDRSZ);
    JsonbToCString(&bytes, &jsonb->root, static_cast<int>(VARSIZE(jsonb)));
    const char* text = bytes.data + VARHDRSZ;
    const char* utf8 = pg_server_to_any(text, bytes.len - VARHDRSZ, PG_UTF8);
    if (utf8 != text) return PointerGetDatum(cstring_to_text(utf8));
    SET_VARSIZE(bytes.data, bytes.len);
    return PointerGetDatum(bytes.data);
  });
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(outbox_emit_jsonb) {
  return postbox::Guarded([&] {
    postbox::RequirePayload(fcinfo);
    return postbox::EmitAndReturn(fcinfo,
                                  postbox::JsonbToBytes(PG_GETARG_DATUM(postbox::kPayload)));
  });
}

POSTBOX_FUNCTION(outbox_emit_bytea) {
  return postbox::Guarded([&] {
    postbox::RequirePayload(fcinfo);
    const Datum payload =
        postbox::Pg([&] { return PointerGetDatum(PG_GETARG_BYTEA_PP(postbox::kPayload)); });
    return postbox::EmitAndReturn(fcinfo, payload);
  });
}

POSTBOX_FUNCTION(outbox_emit_text) {
  return postbox::Guarded([&] {
    postbox::RequirePayload(fcinfo);
    const Datum jsonb = postbox::Pg([&] {
      return DirectFunctionCall1(
          jsonb_in, CStringGetDatum(TextDatumGetCString(PG_GETARG_DATUM(postbox::kPayload))));
    });
    return postbox::EmitAndReturn(fcinfo, postbox::JsonbToBytes(jsonb));
  });
}

// For SQL functions that put events back into the queue (redrive).
POSTBOX_FUNCTION(wake_publishers) {
  return postbox::Guarded([&] {
    postbox::RequestPublishersAtCommit();
    return Datum{0};
  });
}
