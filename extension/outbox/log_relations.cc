#include "extension/outbox/log_relations.h"

#include "extension/base/guard.h"
#include "extension/base/relation.h"
#include "extension/base/spi.h"

extern "C" {
#include <access/xlog.h>
#include <common/hashfn.h>
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

}  // namespace

int16 GenerationOf(TimestampTz moment, int64 span) {
  constexpr int64 kFrom1970To2000 =
      static_cast<int64>(POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY;
  constexpr int64 kGenerations = 6;
  const int64 turn = (moment / USECS_PER_SEC + kFrom1970To2000) / span;
  return static_cast<int16>((turn % kGenerations + kGenerations) % kGenerations);
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

bool HasGenerations() {
  Run("SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'postbox.outbox'::regclass AND "
      "attname = 'generation_span' AND NOT attisdropped)");
  return BoolColumn(0, 1);
}

void AddReplicaTrigger(const std::string& table, const char* kind) {
  if (!HasGenerations()) return;
  Parameters parameters;
  parameters.AddText(table).AddText(kind);
  Run("SELECT postbox.add_replica_trigger($1::regclass, $2)", parameters);
}

void CreateLogTables(const NewRelation& relation, const NullableDatum& retention) {
  const bool has_generations = HasGenerations();
  const std::string table = relation.Qualified();
  const std::string sequence = relation.Qualified("_seq");
  const std::string parked = relation.Qualified("_parked");
  const std::string event_columns =
      "id uuid NOT NULL, "
      "aggregate_type text NOT NULL, "
      "aggregate_id text NOT NULL, "
      "event_type text NOT NULL, "
      "version bigint NOT NULL CHECK (version > 0), "
      "schema_version text NOT NULL DEFAULT 'v1', "
      "payload bytea NOT NULL, "
      "attributes jsonb NOT NULL DEFAULT '{}', "
      "occurred_at timestamptz NOT NULL DEFAULT now(), ";

  // The primary key of a partition is made with it.
  const std::string partitioning =
      has_generations ? "origin int NOT NULL DEFAULT postbox.cluster_origin(), "
                        "generation smallint NOT NULL DEFAULT (" +
                            GenerationOfNow(retention) + ")) PARTITION BY LIST (generation)"
                      : "PRIMARY KEY (id)) PARTITION BY RANGE (id)";

  // No identity column: partitioned tables have none before PostgreSQL 17. Plain INSERTs by others
  // take the default, for which they need USAGE.
  Run("CREATE SEQUENCE " + sequence + " CACHE 1");
  Run("GRANT USAGE ON SEQUENCE " + sequence + " TO PUBLIC");
  Run("CREATE TABLE " + table +
      " (txid xid8 NOT NULL DEFAULT pg_current_xact_id(), seq bigint NOT NULL DEFAULT nextval('" +
      sequence + "'), " + event_columns + partitioning);
  Run("ALTER SEQUENCE " + sequence + " OWNED BY " + table + ".seq");
  // Readers take the rows of this cluster only, in the order of seq.
  Run("CREATE INDEX " + Quoted(relation.name + "_seq_idx") + " ON " + table +
      (has_generations ? " (origin, seq)" : " (seq)"));
  Run("CREATE INDEX " + Quoted(relation.name + "_txid_idx") + " ON " + table + " (txid, seq)");
  if (!has_generations) {
    Run("CREATE TABLE " + relation.Qualified("_default") + " PARTITION OF " + table + " DEFAULT");
  }
  Run("COMMENT ON TABLE " + table + " IS 'Events to publish, append only (postbox outbox)'");

  Run("CREATE TABLE " + parked + " (publication text NOT NULL, seq bigint NOT NULL, " +
      event_columns +
      "publish_attempts int NOT NULL DEFAULT 0, "
      "next_retry_at timestamptz NOT NULL, "
      "last_error text, "
      "parked_at timestamptz NOT NULL DEFAULT now(), "
      "PRIMARY KEY (publication, id))");
  Run("CREATE INDEX " + Quoted(relation.name + "_parked_key") + " ON " + parked +
      " (publication, aggregate_id, seq)");
  Run("CREATE INDEX " + Quoted(relation.name + "_parked_due") + " ON " + parked +
      " (publication, next_retry_at, publish_attempts, seq)");
  Run("COMMENT ON TABLE " + parked +
      " IS 'Events that could not be published, and what waits behind them (postbox outbox)'");
  AddReplicaTrigger(table, "log");
  AddReplicaTrigger(parked, "parked");
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
