#include "extension/registry/log_relations.h"

#include "extension/base/catalog.h"
#include "extension/base/guard.h"
#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/shared/outbox_columns.h"

extern "C" {
#include <access/xlog.h>
#include <catalog/pg_trigger.h>
#include <common/hashfn.h>
#include <parser/parse_func.h>
}

namespace postbox {

namespace {

// The default of the column generation.
std::string GenerationOfNow(const NullableDatum& retention) {
  Parameters parameters;
  if (retention.isnull) {
    parameters.AddNull(INTERVALOID);
  } else {
    parameters.Add(INTERVALOID, retention.value);
  }
  Run("SELECT postbox.generation_expression(postbox.generation_span($1))", parameters);
  return TextColumn(0, 1);
}

// One that is enabled ALWAYS would stamp what logical replication brings.
bool HasStamp(Oid partition, Oid stamp) {
  constexpr int16 kStampType = TRIGGER_TYPE_BEFORE | TRIGGER_TYPE_ROW | TRIGGER_TYPE_INSERT;
  bool found = false;
  ForEachCatalogRow(TriggerRelationId, TriggerRelidNameIndexId,
                    {{Anum_pg_trigger_tgrelid, partition}}, [&](HeapTuple tuple) {
                      const auto* trigger = reinterpret_cast<Form_pg_trigger>(GETSTRUCT(tuple));
                      found |= trigger->tgfoid == stamp && trigger->tgtype == kStampType &&
                               trigger->tgenabled == TRIGGER_FIRES_ON_ORIGIN &&
                               heap_attisnull(tuple, Anum_pg_trigger_tgqual, nullptr);
                    });
  return found;
}

}  // namespace

int16 GenerationOf(TimestampTz moment, int64 span) {
  constexpr int64 kFrom1970To2000 =
      static_cast<int64>(POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY;
  const int64 turn = (moment / USECS_PER_SEC + kFrom1970To2000) / span;
  return static_cast<int16>((turn % kLogGenerations + kLogGenerations) % kLogGenerations);
}

int32 OriginOf(uint64 system_identifier) {
  const auto hash = static_cast<int32>(hash_bytes(
      reinterpret_cast<const unsigned char*>(&system_identifier), sizeof system_identifier));
  return hash == kSettledOrigin || hash == kReplicatedOrigin ? 1 : hash;
}

int32 ClusterOrigin() {
  static const int32 origin = OriginOf(GetSystemIdentifier());
  return origin;
}

std::vector<ColumnShape> EventColumnShapes() {
  return {{"id", "uuid", ""},
          {"aggregate_type", "text", ""},
          {"aggregate_id", "text", ""},
          {"event_type", "text", ""},
          {"version", "bigint", "", true, " CHECK (version > 0)"},
          {"schema_version", "text", "'v1'"},
          {"payload", "bytea", ""},
          {"attributes", "jsonb", "'{}'"},
          {"occurred_at", "timestamp with time zone", "now()"}};
}

TableShape LogShape(const std::string& generation, const std::string& sequence) {
  const std::string literal =
      Pg([&]() -> const char* { return quote_literal_cstr(sequence.c_str()); });
  TableShape shape;
  shape.columns = {{"txid", "xid8", "pg_current_xact_id()"},
                   {"seq", "bigint", "nextval(" + literal + ")"}};
  for (const ColumnShape& column : EventColumnShapes()) shape.columns.push_back(column);
  shape.columns.push_back({"origin", "integer", "postbox.cluster_origin()"});
  shape.columns.push_back({"generation", "smallint", generation});
  for (ColumnShape& column : shape.columns) {
    if (column.name == "txid" || column.name == "seq") column.can_be_added = false;
  }
  // Readers take the rows of this cluster only, in the order of seq.
  shape.indexes = {{"_seq_idx", "origin, seq", ""}, {"_txid_idx", "txid, seq", ""}};
  // The primary key of a partition is made with it.
  shape.options = kByGeneration;
  shape.comment = "Events to publish, append only (postbox outbox)";
  return shape;
}

TableShape ParkedShape() {
  TableShape shape;
  shape.columns = {{"publication", "text", ""}, {"seq", "bigint", ""}};
  for (const ColumnShape& column : EventColumnShapes()) shape.columns.push_back(column);
  shape.columns.push_back({"publish_attempts", "integer", "0"});
  shape.columns.push_back(
      {"next_retry_at", "timestamp with time zone", "", true, "", "'-infinity'"});
  shape.columns.push_back({"last_error", "text", "", false});
  shape.columns.push_back({"parked_at", "timestamp with time zone", "now()"});
  // The row in the log cannot be an event, and this one has what can be stored of it.
  shape.columns.push_back({"unreadable", "boolean", "false"});
  // It was published before: postbox.republish has queued it.
  shape.columns.push_back({"republished", "boolean", "false"});
  shape.primary_key = "publication, id";
  shape.indexes = {{"_key", "publication, " + LogKey() + ", seq", ""},
                   {"_due", "publication, next_retry_at, publish_attempts, seq", ""},
                   {"_again", "publication, " + LogKey(), "republished"}};
  shape.comment = "Events that could not be published, and what waits behind them (postbox outbox)";
  return shape;
}

void CreateSequence(const std::string& sequence, int64 start) {
  // No identity column: partitioned tables have none before PostgreSQL 17. Plain INSERTs by others
  // take the default, for which they need USAGE.
  Run("CREATE SEQUENCE " + sequence + " START WITH " + std::to_string(start) + " CACHE 1");
  Run("GRANT USAGE ON SEQUENCE " + sequence + " TO PUBLIC");
}

std::string TriggersStatement(const std::string& table, const char* kind) {
  const std::string literal =
      Pg([&]() -> const char* { return quote_literal_cstr(table.c_str()); });
  return "SELECT postbox.add_outbox_triggers(" + literal + ", '" + kind + "')";
}

void CreateLogTables(const NewRelation& relation, const NullableDatum& retention) {
  const std::string table = relation.Qualified();
  const std::string sequence = relation.Qualified("_seq");
  CreateSequence(sequence, 1);
  RunAll(CreateStatements(LogShape(GenerationOfNow(retention), sequence), relation.schema,
                          relation.name));
  Run("ALTER SEQUENCE " + sequence + " OWNED BY " + table + ".seq");
  RunAll(CreateStatements(ParkedShape(), relation.schema, relation.name + "_parked"));
  Run(TriggersStatement(table, "log"));
  Run(TriggersStatement(relation.Qualified("_parked"), "parked"));
}

void MakePartitions(Oid log) {
  Parameters outbox;
  outbox.AddOid(REGCLASSOID, log);
  Run("SELECT postbox.make_partitions($1)", outbox);
}

Oid UnstampedPartition(Oid log) {
  const Oid stamp =
      LookupFuncName(list_make2(makeString(pstrdup("postbox")), makeString(pstrdup("stamp_event"))),
                     0, nullptr, true);
  ListCell* cell;
  foreach (cell, PartitionsOf(log)) {
    if (!HasStamp(lfirst_oid(cell), stamp)) return lfirst_oid(cell);
  }
  return InvalidOid;
}

}  // namespace postbox

POSTBOX_FUNCTION(generation_of) {
  const TimestampTz moment = PG_GETARG_TIMESTAMPTZ(0);
  const int64 span = PG_GETARG_INT32(1);
  return postbox::Guarded([&] {
    if (span < 1) postbox::Throw(ERRCODE_INVALID_PARAMETER_VALUE, "span must be positive");
    return Int16GetDatum(postbox::GenerationOf(moment, span));
  });
}
