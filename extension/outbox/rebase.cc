// postbox.rebase_outbox: what to do when the positions of a log come from another cluster.
//
// A position is made of transaction ids (worker/publisher/base/log_position_logic.h). After a
// restore into another cluster, or pg_upgrade, they mean nothing. Rows that some lane has not read
// are appended again, under new transaction ids; rows that every lane has read stay where they are,
// below the floor of every lane.
//
// The log may have rows of this cluster, too: emitted while the dump was restored, or before a
// worker looked. A position of another cluster says nothing about them, so no lane has read them,
// whatever their transaction ids are. The column origin tells them apart.
//
//   1. The table is locked: from here on no transaction emits into this outbox, and every one that
//      has emitted into it has ended.
//   2. The last seq and a snapshot are taken, before this transaction has an id: the snapshot does
//      not see what is appended.
//   3. The unread rows are deleted and inserted again, those that few lanes miss first, and those
//      of this cluster last. A lane that is behind misses whatever the lanes ahead of it miss, so
//      the rows that a lane misses come last, and the lane begins before them. What a lane has read
//      of a key is its first events, so the order of a key stays. They keep their generation.
//   4. Each lane gets its new position.
//
// A crash takes all four back. Steps 1 and 3 touch the user's table, whose triggers, defaults,
// policies and operators belong to its owner: they run as the owner, in a restricted operation.
// Steps 2 and 4 touch the sequence and postbox.lane, and run as the caller, a worker.
#include "extension/base/act_as.h"
#include "extension/base/arguments.h"
#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/outbox/outbox_cache.h"

namespace postbox {
namespace {

// Whether a lane of the outbox has a position of another cluster.
bool IsForeign(Oid outbox, const std::string& identifier) {
  Parameters parameters;
  parameters.AddOid(REGCLASSOID, outbox).AddText(identifier);
  return Run("SELECT FROM postbox.lane l JOIN postbox.publication p ON p.name = l.publication "
             "WHERE p.outbox = $1 AND l.snapshot IS NOT NULL AND l.system_identifier <> "
             "$2::numeric "
             "LIMIT 1",
             parameters) > 0;
}

// What came of step 3.
struct Appended {
  int64 events = 0;
  int64 upto = 0;      // the seq that was taken last
  std::string floors;  // [{"publication": .., "slice": .., "floor": ..}]: where a lane begins
};

Appended AppendUnread(const OutboxFacts& facts, const std::string& identifier, int64 reached) {
  // A log of 0.1 has neither generations nor origins.
  const bool has_origin = facts.primary_key.empty();
  const std::string columns =
      "id, aggregate_type, aggregate_id, event_type, version, schema_version, payload, attributes, "
      "occurred_at" +
      std::string(has_origin ? ", generation" : "");
  const std::string here =
      has_origin ? "(e.origin = postbox.cluster_origin())" : "(e.txid IS NULL)";
  const std::string missed_by_lane = "(postbox.has_read(l, e.txid, e.seq) IS NOT TRUE OR " + here +
                                     " AND l.system_identifier IS DISTINCT FROM $3::numeric)";
  const std::string lane_of =
      "LEFT JOIN postbox.lane_progress l ON l.publication = p.name AND l.slice = "
      "postbox.lane_slice(e.aggregate_id, p.lanes) ";
  const std::string wanted =
      "(p.aggregate_types IS NULL OR e.aggregate_type = ANY (p.aggregate_types))";
  const ActAs owner(facts.owner);
  Parameters parameters;
  parameters.AddOid(REGCLASSOID, facts.relation).Add(INT8OID, Int64GetDatum(reached));
  parameters.AddText(identifier);
  Run("WITH unread AS (DELETE FROM " + facts.name +
          " e WHERE EXISTS (SELECT FROM postbox.publication p " + lane_of +
          "WHERE p.outbox = $1 AND " + wanted + " AND " + missed_by_lane +
          ") RETURNING txid, seq, " + std::string(has_origin ? "origin, " : "") + columns +
          "), missed AS (SELECT e.id, p.name AS publication, l.slice, " + wanted + " AS wanted, " +
          here + " AS here FROM unread e JOIN postbox.publication p ON p.outbox = $1 " + lane_of +
          "WHERE " + missed_by_lane + "), appended AS (INSERT INTO " + facts.name + " (" + columns +
          ") SELECT " + columns +
          " FROM unread JOIN (SELECT id, count(*) AS lanes, bool_or(here) AS here FROM missed "
          "GROUP BY id) AS m USING (id) ORDER BY lanes, here, unread.seq RETURNING id, seq"
          "), first AS (SELECT publication, slice, min(seq) - 1 AS floor FROM missed JOIN appended"
          " USING (id) WHERE wanted GROUP BY publication, slice)"
          " SELECT (SELECT count(*) FROM appended), (SELECT coalesce(max(seq), $2) FROM appended),"
          " (SELECT coalesce(jsonb_agg(first), '[]') FROM first)::text",
      parameters);
  return {Int64Column(0, 1), Int64Column(0, 2), TextColumn(0, 3)};
}

void BeginLanes(Oid outbox, const std::string& identifier, const Appended& appended,
                const std::string& seen) {
  Parameters parameters;
  parameters.AddOid(REGCLASSOID, outbox).AddText(identifier).AddText(seen);
  parameters.AddText(appended.floors).Add(INT8OID, Int64GetDatum(appended.upto));
  Run("UPDATE postbox.lane l SET system_identifier = $2::numeric, floor = coalesce(f.floor, $5), "
      "hwm = coalesce(f.floor, $5), snapshot = $3::pg_snapshot, "
      "next_xid = pg_snapshot_xmax($3::pg_snapshot), zone_upto = NULL, zone_snapshot = NULL, "
      "zone_next_xid = NULL, lock_token = NULL "
      "FROM postbox.lane own JOIN postbox.publication p ON p.name = own.publication "
      "LEFT JOIN jsonb_to_recordset($4::jsonb) AS f(publication text, slice int, floor bigint) "
      "ON f.publication = own.publication AND f.slice = own.slice "
      "WHERE l.publication = own.publication AND l.slice = own.slice AND p.outbox = $1 "
      "AND own.snapshot IS NOT NULL",
      parameters);
}

int64 Rebase(Oid relation) {
  SpiConnection connection;
  FixedSearchPath search_path;
  const std::shared_ptr<Outbox> outbox = FindOutbox(relation);
  const OutboxFacts& facts = outbox->facts();
  if (!facts.is_log) {
    Throw(ERRCODE_WRONG_OBJECT_TYPE, "\"" + facts.name + "\" is not a log outbox", "",
          "Only the positions of a log outbox depend on transaction ids.");
  }
  {
    const ActAs owner(facts.owner);
    Run("LOCK TABLE " + facts.name + " IN SHARE ROW EXCLUSIVE MODE");
  }
  const std::string identifier = std::to_string(GetSystemIdentifier());
  if (!IsForeign(relation, identifier)) return 0;
  Parameters sequence;
  sequence.AddOid(REGCLASSOID, facts.sequence);
  Run("SELECT coalesce(pg_sequence_last_value($1), 0), pg_current_snapshot()::text", sequence);
  const int64 reached = Int64Column(0, 1);
  const std::string seen = TextColumn(0, 2);
  const Appended appended = AppendUnread(facts, identifier, reached);
  BeginLanes(relation, identifier, appended, seen);
  return appended.events;
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(rebase_outbox) {
  return postbox::Guarded(
      [&] { return Int64GetDatum(postbox::Rebase(postbox::OidArgument(fcinfo, 0, "outbox"))); });
}
