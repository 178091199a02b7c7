#include "extension/registry/outbox_registration.h"

#include "extension/base/arguments.h"
#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/trust/registrar.h"

namespace postbox {

void CheckRetention(const NullableDatum& retention) {
  if (retention.isnull) return;
  const bool positive = Microseconds(retention.value) > 0;
  if (!positive) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, "retention must be positive", "",
          "NULL keeps published events forever.");
  }
}

TableShape CounterShape() {
  TableShape shape;
  shape.columns = {{"aggregate_type", "text", "", false, "", "", false},
                   {"aggregate_id", "text", "", false, "", "", false},
                   {"version", "bigint", "", true, "", "", false}};
  shape.primary_key = "aggregate_type, aggregate_id";
  // Half-empty pages: every event updates its aggregate's row, which then stays on its page.
  shape.options = " WITH (fillfactor = 50)";
  shape.comment = "The last version of each aggregate (postbox outbox)";
  return shape;
}

void CreateVersionCounter(const NewRelation& relation) {
  RunAll(CreateStatements(CounterShape(), relation.schema, relation.name + "_version"));
}

void RegisterOutbox(const OutboxRegistration& registration) {
  const Registrar registrar("outbox");
  Parameters row;
  row.AddOid(REGCLASSOID, registration.relation).AddOid(REGCLASSOID, registration.counter);
  row.AddText(registration.kind);
  if (registration.kind == "log") {
    row.AddOid(REGCLASSOID, registration.parked);
  } else {
    row.AddNull(REGCLASSOID);
  }
  if (registration.retention.isnull) {
    row.AddNull(INTERVALOID);
  } else {
    row.Add(INTERVALOID, registration.retention.value);
  }
  row.Add(BOOLOID, BoolGetDatum(registration.adopted)).AddText(registration.columns);
  row.AddText(registration.generation_span);
  row.Add(INT8OID, Int64GetDatum(registration.version_floor));
  Run("INSERT INTO postbox.outbox (relation, counter, kind, parked, retention, adopted, columns, "
      "generation_span, version_floor) VALUES ($1, $2, $3, $4, $5, $6, $7::jsonb, "
      "CASE $3 WHEN 'log' THEN coalesce(nullif($8, '')::interval, postbox.generation_span($5)) "
      "END, $9)",
      row);
}

}  // namespace postbox
