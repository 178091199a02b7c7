#include "extension/outbox/outbox_registration.h"

#include "extension/base/act_as.h"
#include "extension/base/arguments.h"
#include "extension/base/relation.h"
#include "extension/base/spi.h"

namespace postbox {

void CheckRetention(const NullableDatum& retention) {
  if (retention.isnull) return;
  const bool positive = Microseconds(retention.value) > 0;
  if (!positive) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, "retention must be positive", "",
          "NULL keeps published events for ever.");
  }
}

void CreateVersionCounter(const NewRelation& relation) {
  // Half-empty pages: every event updates its aggregate's row, which then stays on its page.
  Run("CREATE TABLE " + relation.Qualified("_version") +
      " (aggregate_type text, aggregate_id text, version bigint NOT NULL, PRIMARY KEY "
      "(aggregate_type, aggregate_id))"
      " WITH (fillfactor = 50)");
  Run("COMMENT ON TABLE " + relation.Qualified("_version") +
      " IS 'The last version of each aggregate (postbox outbox)'");
}

Oid RegisterOutbox(const NewRelation& relation, const OutboxRegistration& registration) {
  Parameters names;
  names.AddText(relation.Qualified()).AddText(relation.Qualified("_version"));
  names.AddText(relation.Qualified("_parked"));
  Run("SELECT $1::regclass::oid, $2::regclass::oid, to_regclass($3)::oid", names);
  const Oid table = OidColumn(0, 1);
  const Oid counter = OidColumn(0, 2);
  const Oid parked = OidColumn(0, 3);
  ActAs registrar(RelationOwner(PostboxRelation("outbox")));
  Parameters row;
  row.AddOid(REGCLASSOID, table).AddOid(REGCLASSOID, counter).AddText(registration.kind);
  if (registration.kind == "log") {
    row.AddOid(REGCLASSOID, parked);
  } else {
    row.AddNull(REGCLASSOID);
  }
  if (registration.retention.isnull) {
    row.AddNull(INTERVALOID);
  } else {
    row.Add(INTERVALOID, registration.retention.value);
  }
  row.Add(BOOLOID, BoolGetDatum(registration.adopted)).AddText(registration.columns);
  const bool span = registration.has_generations;
  Run("INSERT INTO postbox.outbox (relation, counter, kind, parked, retention, adopted, columns" +
          std::string(span ? ", generation_span" : "") +
          ") VALUES ($1, $2, $3, $4, $5, $6, $7::jsonb" +
          (span ? ", postbox.generation_span($5))" : ")"),
      row);
  return table;
}

}  // namespace postbox
