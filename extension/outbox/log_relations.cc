#include "extension/outbox/log_relations.h"

#include "extension/base/relation.h"
#include "extension/base/spi.h"

namespace postbox {

void CreateLogTables(const NewRelation& relation) {
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

  // No identity column: partitioned tables have none before PostgreSQL 17. Plain INSERTs by others
  // take the default, for which they need USAGE.
  Run("CREATE SEQUENCE " + sequence + " CACHE 1");
  Run("GRANT USAGE ON SEQUENCE " + sequence + " TO PUBLIC");
  Run("CREATE TABLE " + table +
      " (txid xid8 NOT NULL DEFAULT pg_current_xact_id(), seq bigint NOT NULL DEFAULT nextval('" +
      sequence + "'), " + event_columns + "PRIMARY KEY (id)) PARTITION BY RANGE (id)");
  Run("ALTER SEQUENCE " + sequence + " OWNED BY " + table + ".seq");
  Run("CREATE INDEX " + Quoted(relation.name + "_seq_idx") + " ON " + table + " (seq)");
  Run("CREATE INDEX " + Quoted(relation.name + "_txid_idx") + " ON " + table + " (txid, seq)");
  Run("CREATE TABLE " + relation.Qualified("_default") + " PARTITION OF " + table + " DEFAULT");
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
}

}  // namespace postbox
