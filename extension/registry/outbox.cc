// postbox.create_outbox, postbox.alter_outbox and postbox.drop_outbox.
//
// The tables are created and dropped as the caller, with the caller's rights (log_relations.h,
// table_relations.h). The row of postbox.outbox is written as the owner of postbox.outbox
// (outbox_registration.h). A table that was there before becomes an outbox in adopt.cc.
//
// Locks are taken in the order of a plain DROP TABLE: the table first, then its registration.
#include "extension/base/arguments.h"
#include "extension/base/guard.h"
#include "extension/base/new_relation.h"
#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/registry/log_relations.h"
#include "extension/registry/outbox_facts.h"
#include "extension/registry/outbox_registration.h"
#include "extension/registry/table_relations.h"
#include "extension/trust/act_as.h"
#include "extension/trust/registrar.h"

extern "C" {
#include <storage/lmgr.h>
}

namespace postbox {
namespace {

// No name made from that of the outbox is longer by more than this.
constexpr size_t kOutboxSuffixLength = 13;

void CheckKind(const std::string& kind) {
  if (kind == "table" || kind == "log") return;
  Throw(ERRCODE_INVALID_PARAMETER_VALUE, "unknown kind of outbox: \"" + kind + "\"", "",
        "The kinds are log and table.");
}

Oid CreateOutbox(const NewRelation& relation, const std::string& kind,
                 const NullableDatum& retention) {
  SpiConnection connection;
  FixedSearchPath search_path;
  const bool log = kind == "log";
  if (log) {
    CreateLogTables(relation, retention);
  } else {
    CreateTable(relation);
  }
  CreateVersionCounter(relation);
  const Oid table = RelationNamed(relation.Qualified());
  RegisterOutbox({.relation = table,
                  .counter = RelationNamed(relation.Qualified("_version")),
                  .parked = log ? RelationNamed(relation.Qualified("_parked")) : InvalidOid,
                  .kind = kind,
                  .retention = retention});
  if (log) MakePartitions(table);
  return table;
}

// With a retention of more than four spans, no generation might ever be past it
// (35_log_outbox.sql). So the span grows with the retention. It does not shrink.
void AlterOutbox(Oid relation, const NullableDatum& retention) {
  SpiConnection connection;
  FixedSearchPath search_path;
  ReadOwnedOutbox(relation);
  // Of two calls the second sees the span of the first.
  Pg([&] { LockRelationOid(relation, ShareUpdateExclusiveLock); });
  const OutboxFacts facts = ReadOwnedOutbox(relation);
  Parameters row;
  row.AddOid(REGCLASSOID, relation);
  retention.isnull ? row.AddNull(INTERVALOID) : row.Add(INTERVALOID, retention.value);
  Run("SELECT CASE WHEN $2 > 4 * o.generation_span THEN "
      "postbox.generation_expression(postbox.generation_span($2)) END "
      "FROM postbox.outbox o WHERE o.relation = $1",
      row);
  const bool grows = !IsNull(0, 1);
  if (grows) {
    Run("ALTER TABLE " + facts.name + " ALTER COLUMN generation SET DEFAULT " + TextColumn(0, 1));
  }
  row.Add(BOOLOID, BoolGetDatum(grows));
  const Registrar registrar("outbox");
  Run("UPDATE postbox.outbox SET retention = $2, generation_span = CASE WHEN $3 THEN "
      "postbox.generation_span($2) ELSE generation_span END, generations_since = CASE WHEN $3 "
      "THEN clock_timestamp() ELSE generations_since END WHERE relation = $1",
      row);
}

// Drops what adopt_outbox created beside the columns. The columns that it added stay: they say what
// has been published.
void ReleaseAdoptedTable(const OutboxFacts& facts) {
  Run("DROP TRIGGER IF EXISTS postbox_wake ON " + facts.name);
  Run("DROP TRIGGER IF EXISTS postbox_replicated ON " + facts.name);
  const std::vector<IndexShape> indexes = TableIndexShapes(facts.columns.AggregateId());
  for (const std::string& index : FindIndexes(facts.relation, indexes)) Run("DROP INDEX " + index);
}

void DropOutbox(Oid relation) {
  SpiConnection connection;
  FixedSearchPath search_path;
  ReadOwnedOutbox(relation);
  // The same order as plain DROP TABLE takes: the table first, then its registration.
  Pg([&] { LockRelationOid(relation, AccessExclusiveLock); });
  const OutboxFacts facts = ReadOwnedOutbox(relation);
  {
    const Registrar registrar("outbox");
    Parameters key;
    key.AddOid(REGCLASSOID, relation);
    Run("DELETE FROM postbox.outbox WHERE relation = $1", key);
  }
  if (facts.adopted) {
    ReleaseAdoptedTable(facts);
  } else {
    Run("DROP TABLE " + facts.name);
  }
  Run("DROP TABLE " + facts.counter_name);
  if (!facts.parked_name.empty()) Run("DROP TABLE " + facts.parked_name);
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(create_outbox) {
  return postbox::Guarded([&] {
    const std::string name = postbox::TextArgument(fcinfo, 0, "name");
    const std::string kind = postbox::TextArgument(fcinfo, 1, "kind");
    postbox::CheckKind(kind);
    postbox::CheckRetention(fcinfo->args[2]);
    const postbox::NewRelation relation =
        postbox::ParseNewRelation(name, postbox::kOutboxSuffixLength);
    return ObjectIdGetDatum(postbox::CreateOutbox(relation, kind, fcinfo->args[2]));
  });
}

POSTBOX_FUNCTION(alter_outbox) {
  return postbox::Guarded([&] {
    const Oid outbox = postbox::OidArgument(fcinfo, 0, "outbox");
    postbox::CheckRetention(fcinfo->args[1]);
    postbox::AlterOutbox(outbox, fcinfo->args[1]);
    return Datum{0};
  });
}

POSTBOX_FUNCTION(drop_outbox) {
  return postbox::Guarded([&] {
    postbox::DropOutbox(postbox::OidArgument(fcinfo, 0, "outbox"));
    return Datum{0};
  });
}
