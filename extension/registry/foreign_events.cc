// postbox.settle_foreign_events: what to do with positions and rows of a log that are of another
// cluster.
//
// A position is made of transaction ids (worker/publisher/store/log_position_logic.h). After a
// restore into another cluster, or pg_upgrade, they mean nothing. The log may have rows of both
// clusters, in any order of txid and seq: restored ones, and those that were emitted here before a
// worker looked, or while the restore went on. The column origin tells them apart.
//
//   1. A lane whose position is of another cluster begins with the first row of this one. Its old
//      position goes into postbox.former_position.
//      A lane that was here before goes on where it stood here.
//   2. Rows of other clusters are settled by these, in batches (postbox.settle_rows): what the old
//      position had not read becomes a parked event that is due. It goes out before what its key
//      has here, and its row is marked, in one transaction. What the old position had read stays
//      where it is, and is not read. (sql/install/functions/32_foreign_rows.sql)
//
// What comes in which order:
//  - Rows before lanes: they are not settled until the lane's row is there. A worker makes no lane;
//    create_publication does, so a dump has all lanes of its publications.
//  - Lanes before rows: they are settled when they appear, whenever that is.
//  - Rows and no lanes, as in a copy of the table: what was published is unknown. They are kept,
//    postbox.outbox_status says so, and postbox.resolve_unknown_origin decides.
//  - A worker that looks while pg_restore loads: a log without its index on (origin, seq) is not
//    complete, and is not read. pg_restore makes an index of a partitioned table valid when all
//    partitions are loaded.
//
// A crash takes a batch back as a whole. Step 2 touches the user's tables, whose triggers, policies
// and operators belong to their owner: it runs as the owner, in a restricted operation. Step 1
// touches tables of Postbox, and runs as the caller, a worker.
#include "extension/base/arguments.h"
#include "extension/base/spi.h"
#include "extension/lifecycle/wakeup.h"
#include "extension/registry/log_relations.h"
#include "extension/registry/outbox_facts.h"
#include "extension/trust/act_as.h"

extern "C" {
#include <access/xlog.h>
#include <utils/numeric.h>
}

namespace postbox {
namespace {

// How many rows a call settles at most: a worker has other publications to serve.
constexpr int kBatch = 2000;
// Of more clusters no log has events, unless origins are forged: each costs every look at it.
constexpr int kMostClusters = 100;

OutboxFacts FactsOfLog(Oid relation) {
  OutboxFacts facts = ReadOutboxFacts(relation);
  if (!facts.is_log) {
    Throw(ERRCODE_WRONG_OBJECT_TYPE, "\"" + facts.name + "\" is not a log outbox", "",
          "Only the positions of a log outbox depend on transaction ids.");
  }
  return facts;
}

int64 Rebase(Oid relation) {
  SpiConnection connection;
  FixedSearchPath search_path;
  const OutboxFacts facts = FactsOfLog(relation);
  Parameters parameters;
  parameters.AddOid(REGCLASSOID, relation);
  Run("SELECT postbox.begin_here($1)", parameters);
  if (!BoolColumn(0, 1)) return 0;
  parameters.AddInt(kBatch);
  int64 settled = 0;
  {
    const ActAs owner(facts.owner);
    Run("SELECT postbox.settle_rows($1, $2)", parameters);
    settled = Int64Column(0, 1);
  }
  if (settled > 0) {
    // The lanes read the keys of their parked events again.
    Parameters of;
    of.AddOid(REGCLASSOID, relation);
    Run("UPDATE postbox.former_position f SET settled = f.settled + 1 FROM postbox.publication p "
        "WHERE p.name = f.publication AND p.outbox = $1",
        of);
  }
  return settled;
}

// What is not known, a superuser decides. The table is asked as its owner.
void DecideUnknown(Oid relation, bool published) {
  SpiConnection connection;
  FixedSearchPath search_path;
  const OutboxFacts facts = FactsOfLog(relation);
  Parameters parameters;
  parameters.AddOid(REGCLASSOID, relation).AddInt(kMostClusters + 1);
  std::vector<int> origins;
  {
    const ActAs owner(facts.owner);
    const uint64 rows = Run(
        "SELECT f.origin FROM postbox.foreign_origins($1, $1, $2) f WHERE NOT f.known", parameters);
    for (uint64 row = 0; row < rows; ++row) origins.push_back(Int32Column(row, 1));
  }
  if (std::ssize(origins) > kMostClusters) {
    Throw(ERRCODE_PROGRAM_LIMIT_EXCEEDED,
          "outbox \"" + facts.name + "\" has events of more than " + std::to_string(kMostClusters) +
              " unknown clusters",
          "Each cluster has one origin: most of these are forged.",
          "DELETE the events whose origin is not that of one of your clusters "
          "(postbox.cluster_origin()), then call the function again.");
  }
  for (const int origin : origins) {
    Parameters decision;
    decision.AddOid(REGCLASSOID, relation).AddInt(origin).Add(BOOLOID, BoolGetDatum(published));
    Run("INSERT INTO postbox.former_position (publication, slice, origin, floor, hwm, snapshot) "
        "SELECT p.name, s.slice, $2, CASE WHEN $3 THEN 9223372036854775807 END, "
        "CASE WHEN $3 THEN 9223372036854775807 END, CASE WHEN $3 THEN '1:1:'::pg_snapshot END "
        "FROM postbox.publication p CROSS JOIN LATERAL generate_series(0, p.lanes - 1) AS s(slice) "
        "WHERE p.outbox = $1 ON CONFLICT DO NOTHING",
        decision);
  }
  RequestPublishersAtCommit();
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(settle_foreign_events) {
  return postbox::Guarded(
      [&] { return Int64GetDatum(postbox::Rebase(postbox::OidArgument(fcinfo, 0, "outbox"))); });
}

POSTBOX_FUNCTION(resolve_unknown_origin) {
  return postbox::Guarded([&] {
    const Oid outbox = postbox::OidArgument(fcinfo, 0, "outbox");
    postbox::DecideUnknown(outbox, DatumGetBool(postbox::Argument(fcinfo, 1, "published")));
    return Datum{0};
  });
}

POSTBOX_FUNCTION(cluster_origin) { return Int32GetDatum(postbox::ClusterOrigin()); }

// The system identifier as pg_control_system() shows it.
POSTBOX_FUNCTION(this_database) {
  return postbox::Guarded([&] {
    return postbox::TextValue(std::to_string(static_cast<int64>(GetSystemIdentifier())) + "/" +
                              std::to_string(MyDatabaseId));
  });
}

POSTBOX_FUNCTION(origin_of) {
  return postbox::Guarded([&] {
    const char* text = postbox::Pg(
        [&] { return DatumGetCString(DirectFunctionCall1(numeric_out, PG_GETARG_DATUM(0))); });
    uint64 identifier = 0;
    std::from_chars(text, text + std::strlen(text), identifier);
    return Int32GetDatum(postbox::OriginOf(identifier));
  });
}
