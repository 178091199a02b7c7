// See lane_table.h.
#include "worker/publisher/base/lane_table.h"

#include "worker/publisher/base/registration.h"

namespace postbox::publisher {

namespace {

std::vector<std::string> ArrayTexts(const std::string& list) {
  std::vector<std::string> texts;
  if (list.empty()) return texts;
  std::size_t begin = 0;
  for (std::size_t end = list.find(' '); end != std::string::npos; end = list.find(' ', begin)) {
    texts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  texts.push_back(list.substr(begin));
  return texts;
}

template <class Number>
Number ToNumber(const std::string& text) {
  Number number{};
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

XidSnapshot ToSnapshot(const std::string& text) {
  std::optional<XidSnapshot> snapshot = XidSnapshot::FromText(text);
  if (!snapshot) {
    Throw(ERRCODE_DATA_CORRUPTED, "lane has a damaged snapshot: \"" + text + "\"");
  }
  return *std::move(snapshot);
}

// The zones of which the columns of SPI_tuptable are the lists, from this one on: upper ends,
// snapshots, next transaction ids.
std::vector<LogZone> ZonesColumns(int column) {
  const std::vector<std::string> uptos = ArrayTexts(TextColumn(0, column));
  const std::vector<std::string> snapshots = ArrayTexts(TextColumn(0, column + 1));
  const std::vector<std::string> next_xids = ArrayTexts(TextColumn(0, column + 2));
  std::vector<LogZone> zones;
  for (std::size_t i = 0; i < uptos.size() && i < snapshots.size() && i < next_xids.size(); ++i) {
    zones.push_back(
        {ToNumber<int64_t>(uptos[i]), ToSnapshot(snapshots[i]), ToNumber<FullXid>(next_xids[i])});
  }
  return zones;
}

// The same lists of a position, to be stored.
struct ZoneTexts {
  ZoneTexts() = default;
  explicit ZoneTexts(const LogPosition& position) {
    for (const LogZone& zone : position.zones()) {
      uptos.push_back(std::to_string(zone.upto));
      snapshots.push_back(zone.seen.ToText());
      next_xids.push_back(std::to_string(zone.next_xid));
    }
  }
  std::vector<std::string> uptos, snapshots, next_xids;
};

std::string Identifier() { return std::to_string(GetSystemIdentifier()); }

// Whether what this worker knows of a publication is still so, as far as failures go.
constexpr const char* kIsCurrent =
    " FROM postbox.publication p WHERE p.name OPERATOR(pg_catalog.=) $1 "
    "AND p.outbox OPERATOR(pg_catalog.=) $2 AND p.topic OPERATOR(pg_catalog.=) $3 "
    "AND p.created_at OPERATOR(pg_catalog.=) $4 "
    "AND coalesce(p.credential, '') OPERATOR(pg_catalog.=) $5";

Parameters Current(const Publication& publication) {
  Parameters parameters;
  parameters.AddText(publication.name).AddOid(OIDOID, publication.outbox);
  parameters.AddText(publication.topic);
  parameters.Add(TIMESTAMPTZOID, TimestampTzGetDatum(publication.created_at));
  parameters.AddText(publication.credential);
  return parameters;
}

}  // namespace

Suspension ReadSuspension(const std::string& publication) {
  // It runs with every claim. It is never destroyed: at exit the server's memory goes without us.
  static Statement& statement = *new Statement(
      "SELECT coalesce(l.attempts, 0), CASE WHEN l.next_retry_at OPERATOR(pg_catalog.>) "
      "pg_catalog.now() THEN l.next_retry_at END, l.suspended_since FROM postbox.publication p "
      "LEFT JOIN postbox.lane l ON l.publication OPERATOR(pg_catalog.=) p.name "
      "AND l.slice OPERATOR(pg_catalog.=) 0 WHERE p.name OPERATOR(pg_catalog.=) $1",
      {TEXTOID});
  Suspension state;
  if (statement.Run({TextValue(publication)}) == 0) return state;
  state.publication_exists = true;
  state.attempts = Int32Column(0, 1);
  state.retry_at = Int64Column(0, 2);
  state.since = Int64Column(0, 3);
  return state;
}

TimestampTz Suspend(const Publication& publication, const std::string& error,
                    const pubsub::BackoffPolicy& backoff, TimestampTz earliest) {
  Parameters name;
  name.AddText(publication.name);
  // The row lock makes workers that fail together take turns; the second one then sees that the
  // publication is suspended.
  if (Run("SELECT attempts, CASE WHEN next_retry_at OPERATOR(pg_catalog.>) pg_catalog.now() "
          "THEN next_retry_at END FROM postbox.lane WHERE publication OPERATOR(pg_catalog.=) $1 "
          "AND slice OPERATOR(pg_catalog.=) 0 FOR UPDATE",
          name) == 0) {
    return 0;  // dropped meanwhile, or a restore has yet to load it
  }
  if (const TimestampTz suspended = Int64Column(0, 2); suspended != 0) return suspended;
  const int attempts = Int32Column(0, 1) + 1;
  // To alter the publication writes the row that is locked now.
  Parameters current = Current(publication);
  if (Run(std::string("SELECT 1") + kIsCurrent, current) == 0) return 0;
  const auto delay = pubsub::BackoffDelay(backoff, attempts, pubsub::JitterRandom());
  const TimestampTz retry_at =
      std::max(earliest, TimestampTzPlusMilliseconds(GetCurrentTimestamp(), delay.count()));
  Parameters values;
  values.AddText(publication.name).AddInt(attempts);
  values.Add(TIMESTAMPTZOID, TimestampTzGetDatum(retry_at)).AddText(error);
  Run("UPDATE postbox.lane SET attempts = $2, next_retry_at = $3, last_error = $4, "
      "suspended_since = CASE WHEN attempts OPERATOR(pg_catalog.=) 0 THEN pg_catalog.now() "
      "ELSE coalesce(suspended_since, pg_catalog.now()) END "
      "WHERE publication OPERATOR(pg_catalog.=) $1 AND slice OPERATOR(pg_catalog.=) 0",
      values);
  return retry_at;
}

bool EndSuspension(const Publication& publication) {
  Parameters current = Current(publication);
  return Run(std::string("UPDATE postbox.lane SET attempts = 0, next_retry_at = NULL, "
                         "last_error = NULL, suspended_since = NULL "
                         "WHERE publication OPERATOR(pg_catalog.=) $1 "
                         "AND slice OPERATOR(pg_catalog.=) 0 "
                         "AND attempts OPERATOR(pg_catalog.>) 0 AND EXISTS (SELECT") +
                 kIsCurrent + ")",
             current) > 0;
}

namespace {

// Of the suspended publications `p` for which the condition holds. Rows that an owner has locked
// are left out: to wait for them would take as long as the owner likes.
void RetryWhere(const char* condition, Parameters& parameters) {
  Run(std::string(
          "UPDATE postbox.lane SET attempts = 1, next_retry_at = pg_catalog.now() "
          "WHERE ctid OPERATOR(pg_catalog.=) ANY (ARRAY("
          "SELECT l.ctid FROM postbox.lane l JOIN postbox.publication p "
          "ON p.name OPERATOR(pg_catalog.=) l.publication "
          "WHERE l.next_retry_at IS NOT NULL AND l.attempts OPERATOR(pg_catalog.>) 0 AND ") +
          condition + " FOR UPDATE OF l SKIP LOCKED))",
      parameters);
}

}  // namespace

void RetryNow(const std::set<std::string>& credentials) {
  Parameters parameters;
  parameters.Add(TEXTARRAYOID, TextArrayValue({credentials.begin(), credentials.end()}));
  RetryWhere("coalesce(p.credential, '') OPERATOR(pg_catalog.=) ANY ($1)", parameters);
}

void RetryAllNow() {
  Parameters none;
  RetryWhere("true", none);
}

std::string LockHolders(Oid relation) {
  Parameters parameters;
  parameters.AddOid(OIDOID, relation).AddOid(OIDOID, MyDatabaseId);
  // A database that was copied with CREATE DATABASE has relations of the same OIDs.
  const uint64 rows =
      Run("SELECT DISTINCT l.pid FROM pg_catalog.pg_locks l "
          "WHERE l.locktype OPERATOR(pg_catalog.=) 'relation'::pg_catalog.text "
          "AND l.database OPERATOR(pg_catalog.=) $2 "
          "AND l.relation OPERATOR(pg_catalog.=) $1 AND l.granted AND l.pid IS NOT NULL "
          "AND (l.mode OPERATOR(pg_catalog.=) 'AccessExclusiveLock'::pg_catalog.text "
          "OR l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock'::pg_catalog.text "
          "OR l.mode OPERATOR(pg_catalog.=) 'ShareRowExclusiveLock'::pg_catalog.text "
          "OR l.mode OPERATOR(pg_catalog.=) 'ShareLock'::pg_catalog.text)",
          parameters);
  std::string holders;
  for (uint64 row = 0; row < rows; ++row) {
    holders += (row == 0 ? "" : ", ") + std::to_string(Int32Column(row, 1));
  }
  return holders;
}

namespace {

// What they say of a lane are values: one plan of each serves all lanes of the worker.
struct RowStatements {
  Statement look{
      "SELECT lock_token FROM postbox.lane WHERE publication OPERATOR(pg_catalog.=) $1 "
      "AND slice OPERATOR(pg_catalog.=) $2 AND lock_token IS NOT NULL",
      {TEXTOID, INT4OID}};
  Statement read{
      "SELECT coalesce(lock_token, ''), floor, snapshot::pg_catalog.text, "
      "pg_catalog.array_to_string(zone_upto, ' '), "
      "pg_catalog.array_to_string(zone_snapshot, ' '), "
      "pg_catalog.array_to_string(zone_next_xid, ' '), (ahead).after, "
      "pg_catalog.array_to_string((ahead).upto, ' '), "
      "pg_catalog.array_to_string((ahead).snapshot, ' '), "
      "pg_catalog.array_to_string((ahead).next_xid, ' '), "
      "pg_catalog.array_to_string((ahead).withheld, ' ') FROM postbox.lane "
      "WHERE publication OPERATOR(pg_catalog.=) $1 AND slice OPERATOR(pg_catalog.=) $2 "
      "FOR UPDATE SKIP LOCKED",
      {TEXTOID, INT4OID}};
  Statement take{
      "UPDATE postbox.lane SET lock_token = $3, locked_at = pg_catalog.now() "
      "WHERE publication OPERATOR(pg_catalog.=) $1 AND slice OPERATOR(pg_catalog.=) $2",
      {TEXTOID, INT4OID, TEXTOID}};
  Statement release{
      "UPDATE postbox.lane SET lock_token = $5, "
      "sent_again = sent_again OPERATOR(pg_catalog.+) $4, sent_again_at = CASE "
      "WHEN $4 OPERATOR(pg_catalog.>) 0 THEN pg_catalog.now() ELSE sent_again_at END "
      "WHERE publication OPERATOR(pg_catalog.=) $1 AND slice OPERATOR(pg_catalog.=) $2 "
      "AND lock_token OPERATOR(pg_catalog.=) $3",
      {TEXTOID, INT4OID, TEXTOID, INT8OID, TEXTOID}};
  Statement checkpoint{
      "UPDATE postbox.lane SET locked_at = pg_catalog.now(), "
      "system_identifier = $4::numeric, floor = $5, hwm = $6, "
      "snapshot = $7::pg_catalog.pg_snapshot, next_xid = $8::pg_catalog.xid8, "
      "zone_upto = $9::bigint[], zone_snapshot = $10::pg_catalog.pg_snapshot[], "
      "zone_next_xid = $11::pg_catalog.xid8[], ahead = CASE WHEN $15 OPERATOR(pg_catalog.=) "
      "'{}'::pg_catalog.text[] THEN NULL ELSE ROW($14, $15::bigint[], "
      "$16::pg_catalog.pg_snapshot[], $17::pg_catalog.xid8[], "
      "$18)::postbox.position_ahead END, "
      "sent_again = sent_again OPERATOR(pg_catalog.+) $19, sent_again_at = CASE "
      "WHEN $19 OPERATOR(pg_catalog.>) 0 THEN pg_catalog.now() ELSE sent_again_at END "
      "WHERE publication OPERATOR(pg_catalog.=) $1 AND slice OPERATOR(pg_catalog.=) $2 "
      "AND lock_token OPERATOR(pg_catalog.=) $3 AND NOT EXISTS (SELECT FROM "
      "postbox.publication p WHERE p.name OPERATOR(pg_catalog.=) $1 "
      "AND p.filter_changes[pg_catalog.cardinality(p.filter_changes)] "
      "OPERATOR(pg_catalog.<>) $12::pg_catalog.xid8 "
      // The change after that which the worker knows. Unknown: there were very many since.
      "AND coalesce(pg_catalog.pg_visible_in_snapshot(p.filter_changes["
      "pg_catalog.array_position(p.filter_changes, $12::pg_catalog.xid8) "
      "OPERATOR(pg_catalog.+) 1], $13::pg_catalog.pg_snapshot), true))",
      {TEXTOID, INT4OID, TEXTOID, TEXTOID, INT8OID, INT8OID, TEXTOID, TEXTOID, TEXTARRAYOID,
       TEXTARRAYOID, TEXTARRAYOID, TEXTOID, TEXTOID, INT8OID, TEXTARRAYOID, TEXTARRAYOID,
       TEXTARRAYOID, INT8ARRAYOID, INT8OID}};
  Statement add_sent_again{
      "UPDATE postbox.lane SET sent_again = sent_again OPERATOR(pg_catalog.+) $2, "
      "sent_again_at = pg_catalog.now() WHERE ctid OPERATOR(pg_catalog.=) ANY (ARRAY("
      "SELECT ctid FROM postbox.lane WHERE publication OPERATOR(pg_catalog.=) $1 "
      "AND slice OPERATOR(pg_catalog.=) 0 FOR UPDATE SKIP LOCKED))",
      {TEXTOID, INT8OID}};

  // They are never destroyed: at exit the server's memory goes without us.
  static RowStatements& Of() {
    static RowStatements& statements = *new RowStatements;
    return statements;
  }
};

}  // namespace

LaneRow::LaneRow(const Publication& publication, int slice, std::string lock_token)
    : publication_(publication.name),
      filter_since_(publication.filter_since),
      slice_(slice),
      lock_token_(std::move(lock_token)) {}

bool LaneRow::IsOurs() {
  return RowStatements::Of().look.Run({TextValue(publication_), Int32GetDatum(slice_)}) > 0 &&
         TextColumn(0, 1) == lock_token_;
}

std::optional<LaneRow::Taken> LaneRow::TryAcquire() {
  const Datum publication = TextValue(publication_);
  const Datum slice = Int32GetDatum(slice_);
  // A row lock needs a transaction id, and is not asked for as long as it would be for nothing.
  if (RowStatements::Of().look.Run({publication, slice}) > 0 && !MayTake(TextColumn(0, 1)))
    return std::nullopt;
  // It is locked, or a restore has yet to load it. A lane that was made here would be in its way.
  if (RowStatements::Of().read.Run({publication, slice}) == 0) return std::nullopt;
  const std::string token = TextColumn(0, 1);
  LanePosition position;
  if (!IsNull(0, 3)) {
    const XidSnapshot top = ToSnapshot(TextColumn(0, 3));
    position.main = LogPosition(Int64Column(0, 2), ZonesColumns(4), top);
    if (!IsNull(0, 7)) {
      position.ahead = {LogPosition(Int64Column(0, 7), ZonesColumns(8), top), {}};
      for (const std::string& seq : ArrayTexts(TextColumn(0, 11))) {
        position.ahead->withheld.push_back(ToNumber<int64_t>(seq));
      }
    }
  }

  // Under the row lock, and after the token was read.
  if (!MayTake(token)) return std::nullopt;
  RowStatements::Of().take.Run({publication, slice, TextValue(lock_token_)});
  return Taken{std::move(position), token.empty() || token == lock_token_};
}

bool LaneRow::MayTake(const std::string& token) const {
  return token.empty() || token == lock_token_ ||
         !IsLiving(identity().database, token, LeaseMilliseconds());
}

void LaneRow::Release(bool in_order, std::int64_t sent_again) {
  const Datum values[] = {TextValue(publication_), Int32GetDatum(slice_), TextValue(lock_token_),
                          Int64GetDatum(sent_again), TextValue(kGone)};
  RowStatements::Of().release.Run(values, in_order ? "    n" : nullptr);
}

bool LaneRow::Checkpoint(const LanePosition& position, std::int64_t sent_again) {
  const ZoneTexts zones(position.main);
  const ZoneTexts ahead = position.ahead ? ZoneTexts(position.ahead->position) : ZoneTexts();
  const std::string next_xid = zones.next_xids.empty() ? "3" : zones.next_xids.back();
  return RowStatements::Of().checkpoint.Run(
             {TextValue(publication_), Int32GetDatum(slice_), TextValue(lock_token_),
              TextValue(Identifier()), Int64GetDatum(position.main.floor()),
              Int64GetDatum(position.main.from()), TextValue(position.main.top().ToText()),
              TextValue(next_xid), TextArrayValue(zones.uptos), TextArrayValue(zones.snapshots),
              TextArrayValue(zones.next_xids), TextValue(filter_since_),
              TextValue(position.newest().ToText()),
              Int64GetDatum(position.ahead ? position.ahead->position.floor() : 0),
              TextArrayValue(ahead.uptos), TextArrayValue(ahead.snapshots),
              TextArrayValue(ahead.next_xids),
              Int64ArrayValue(position.ahead ? position.ahead->withheld
                                             : std::vector<std::int64_t>()),
              Int64GetDatum(sent_again)}) == 1;
}

bool StoreSentAgain(const std::string& publication, std::int64_t events) {
  return RowStatements::Of().add_sent_again.Run({TextValue(publication), Int64GetDatum(events)}) >
         0;
}

}  // namespace postbox::publisher
