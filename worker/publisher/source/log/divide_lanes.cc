#include "worker/publisher/source/log/divide_lanes.h"

#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/trust/act_as.h"
#include "worker/publisher/base/registration.h"
#include "worker/publisher/source/log/log_moment.h"
#include "worker/publisher/source/row_security.h"
#include "worker/publisher/store/lane_row.h"

namespace postbox::publisher {
namespace {

constexpr int kMostParked = 1000;

// Locks the publication, its state and its lanes, in the order of ALTER and DROP. False: another
// session has one of them, or the publication has been altered again.
bool LockAll(const Publication& publication) {
  Parameters name;
  name.AddText(publication.name);
  if (Run("SELECT lanes, coalesce(wanted_lanes, 0) FROM postbox.publication "
          "WHERE name OPERATOR(pg_catalog.=) $1 FOR UPDATE SKIP LOCKED",
          name) == 0 ||
      Int32Column(0, 1) != publication.lanes || Int32Column(0, 2) != publication.wanted_lanes) {
    return false;
  }
  // It may have none (Suspend()), which is in no way here.
  const std::string state =
      "SELECT FROM postbox.publication_state WHERE publication OPERATOR(pg_catalog.=) $1";
  if (Run(state + " FOR UPDATE SKIP LOCKED", name) == 0 && Run(state, name) > 0) return false;
  Parameters lanes;
  lanes.AddText(publication.name).AddText(std::to_string(GetSystemIdentifier()));
  const uint64 rows =
      Run("SELECT coalesce(lock_token, ''), system_identifier OPERATOR(pg_catalog.=) $2::numeric "
          "FROM postbox.lane WHERE publication OPERATOR(pg_catalog.=) $1 FOR UPDATE SKIP LOCKED",
          lanes);
  bool free = rows == static_cast<uint64>(publication.lanes);
  for (uint64 row = 0; row < rows; ++row) {
    const std::string token = TextColumn(row, 1);
    free = free && BoolColumn(row, 2) &&
           (token.empty() || !IsLiving(identity().database, token, LeaseMilliseconds()));
  }
  return free;
}

bool IsMultiple(const Publication& publication) {
  return publication.wanted_lanes % publication.lanes == 0;
}

void SetLanes(const Publication& publication) {
  Parameters parameters;
  parameters.AddText(publication.name);
  Run("UPDATE postbox.publication SET lanes = wanted_lanes, wanted_lanes = NULL "
      "WHERE name OPERATOR(pg_catalog.=) $1",
      parameters);
}

// The old lanes have other keys now. A worker that had one, and was not heard of for longer than
// its lease, finds that it does not have it any more.
void ClearTokens(const Publication& publication) {
  Parameters parameters;
  parameters.AddText(publication.name).AddText(LaneRow::kGone);
  Run("UPDATE postbox.lane SET lock_token = $2 WHERE publication OPERATOR(pg_catalog.=) $1 "
      "AND lock_token IS NOT NULL",
      parameters);
}

void Multiply(const Publication& publication) {
  Parameters parameters;
  parameters.AddText(publication.name).AddInt(publication.lanes).AddInt(publication.wanted_lanes);
  Run("INSERT INTO postbox.lane (publication, slice, lock_token, system_identifier, floor, hwm, "
      "snapshot, next_xid, zone_upto, zone_snapshot, zone_next_xid, ahead) SELECT l.publication, "
      "n.slice, l.lock_token, l.system_identifier, l.floor, l.hwm, l.snapshot, l.next_xid, "
      "l.zone_upto, l.zone_snapshot, l.zone_next_xid, l.ahead FROM pg_catalog.generate_series($2, "
      "$3 OPERATOR(pg_catalog.-) 1) "
      "AS "
      "n(slice) "
      "JOIN postbox.lane l ON l.publication OPERATOR(pg_catalog.=) $1 "
      "AND l.slice OPERATOR(pg_catalog.=) (n.slice OPERATOR(pg_catalog.%) $2)",
      parameters);
  Run("INSERT INTO postbox.former_position (publication, slice, origin, floor, hwm, snapshot, "
      "next_xid, zone_upto, zone_snapshot, ahead) SELECT f.publication, n.slice, f.origin, "
      "f.floor, "
      "f.hwm, "
      "f.snapshot, f.next_xid, f.zone_upto, f.zone_snapshot, f.ahead "
      "FROM pg_catalog.generate_series($2, $3 OPERATOR(pg_catalog.-) 1) AS n(slice) "
      "JOIN postbox.former_position f ON f.publication OPERATOR(pg_catalog.=) $1 "
      "AND f.slice OPERATOR(pg_catalog.=) (n.slice OPERATOR(pg_catalog.%) $2)",
      parameters);
}

bool ParkUnread(const Publication& publication, const LogMoment& moment) {
  const Oid owner_role = RelationOwner(publication.outbox);
  RefuseRowSecurity(publication.outbox, owner_role);
  RefuseRowSecurity(publication.parked, owner_role);
  const ActAs owner(owner_role);
  Parameters outbox;
  outbox.AddOid(REGCLASSOID, publication.outbox);
  Run("SELECT postbox.has_unsettled($1, $1)", outbox);
  if (BoolColumn(0, 1)) return false;
  Parameters parameters;
  parameters.AddText(publication.name)
      .Add(INT8OID, Int64GetDatum(moment.hwm))
      .AddText(moment.snapshot.ToText())
      .AddInt(kMostParked);
  Run("SELECT postbox.park_unread($1, $2, $3::pg_catalog.pg_snapshot, $4)", parameters);
  return BoolColumn(0, 1);
}

void BeginAll(const Publication& publication, const LogMoment& moment) {
  Parameters parameters;
  parameters.AddText(publication.name)
      .AddInt(publication.wanted_lanes)
      .Add(INT8OID, Int64GetDatum(moment.hwm))
      .AddText(moment.snapshot.ToText())
      .AddText(std::to_string(moment.next_xid));
  // What other clusters had not published was settled before. The floor is no more than the seq:
  // the log may go back there, and get more rows.
  Run("INSERT INTO postbox.former_position (publication, slice, origin, floor, hwm, snapshot, "
      "next_xid) SELECT $1, n.slice, f.origin, $3, $3, "
      "$4::pg_catalog.pg_snapshot, $5::pg_catalog.xid8 FROM (SELECT DISTINCT o.origin "
      "FROM postbox.former_position o WHERE o.publication OPERATOR(pg_catalog.=) $1) AS f, "
      "pg_catalog.generate_series(0, $2 OPERATOR(pg_catalog.-) 1) "
      "AS n(slice) ON CONFLICT (publication, slice, origin) DO UPDATE SET floor = EXCLUDED.floor, "
      "hwm = EXCLUDED.hwm, snapshot = EXCLUDED.snapshot, next_xid = EXCLUDED.next_xid, "
      "zone_upto = NULL, zone_snapshot = NULL, ahead = NULL",
      parameters);
  Run("DELETE FROM postbox.former_position WHERE publication OPERATOR(pg_catalog.=) $1 "
      "AND slice OPERATOR(pg_catalog.>=) $2",
      parameters);
  // What the lanes that go have counted stays.
  Run("WITH gone AS (DELETE FROM postbox.lane WHERE publication OPERATOR(pg_catalog.=) $1 "
      "AND slice OPERATOR(pg_catalog.>=) $2 RETURNING sent_again, sent_again_at) "
      "UPDATE postbox.publication_state SET sent_again = sent_again OPERATOR(pg_catalog.+) "
      "coalesce((SELECT pg_catalog.sum(g.sent_again)::bigint FROM gone g), 0), sent_again_at = "
      "GREATEST(sent_again_at, (SELECT pg_catalog.max(g.sent_again_at) FROM gone g)) "
      "WHERE publication OPERATOR(pg_catalog.=) $1",
      parameters);
  Run("INSERT INTO postbox.lane (publication, slice, lock_token, system_identifier, floor, hwm, "
      "snapshot, next_xid, zone_upto, zone_snapshot, zone_next_xid) SELECT $1, n.slice, "
      "(SELECT pg_catalog.max(l.lock_token) FROM postbox.lane l "
      "WHERE l.publication OPERATOR(pg_catalog.=) $1), c.system_identifier, 0, $3, "
      "$4::pg_catalog.pg_snapshot, $5::pg_catalog.xid8, ARRAY[$3], "
      "ARRAY[$4::pg_catalog.pg_snapshot], ARRAY[$5::pg_catalog.xid8] "
      "FROM pg_catalog.generate_series(0, $2 OPERATOR(pg_catalog.-) 1) AS n(slice), "
      "pg_catalog.pg_control_system() c ON CONFLICT (publication, slice) DO UPDATE SET "
      "floor = EXCLUDED.floor, hwm = EXCLUDED.hwm, snapshot = EXCLUDED.snapshot, "
      "next_xid = EXCLUDED.next_xid, zone_upto = EXCLUDED.zone_upto, "
      "zone_snapshot = EXCLUDED.zone_snapshot, zone_next_xid = EXCLUDED.zone_next_xid, "
      "ahead = NULL, lock_token = EXCLUDED.lock_token",
      parameters);
}

bool Merge(const Publication& publication) {
  Parameters sequence;
  sequence.AddOid(REGCLASSOID, LogSequence(publication.outbox));
  Run("SELECT coalesce(pg_catalog.pg_sequence_last_value($1), 0)", sequence);
  const int64 last_seq = Int64Column(0, 1);
  std::optional<LogMoment> moment;
  {
    const SnapshotGuard snapshot;
    moment = TakeMoment(last_seq);
  }
  if (!ParkUnread(publication, *moment)) return false;
  BeginAll(publication, *moment);
  return true;
}

}  // namespace

Division DivideLanes(const Publication& publication) {
  if (!LockAll(publication)) return Division::kWaits;
  ClearTokens(publication);
  if (IsMultiple(publication)) {
    Multiply(publication);
  } else if (!Merge(publication)) {
    return Division::kTooMany;
  }
  SetLanes(publication);
  Pg([&] {
    ereport(LOG, (errmsg("publication \"%s\" now has %d lanes", publication.name.c_str(),
                         publication.wanted_lanes)));
  });
  return Division::kDone;
}

bool CanBeDivided(const Publication& publication) {
  if (IsMultiple(publication)) return true;
  const ActAs owner(RelationOwner(publication.outbox));
  Parameters name;
  name.AddText(publication.name);
  Run("SELECT ready FROM postbox.publication_backlog($1)", name);
  return !IsNull(0, 1) && Int64Column(0, 1) < kMostParked;
}

}  // namespace postbox::publisher
