// See lane_row.h.
#include "worker/publisher/store/lane_row.h"

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

}  // namespace postbox::publisher
