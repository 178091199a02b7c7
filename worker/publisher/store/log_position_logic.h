// How far a lane has read an append-only outbox: a cursor made of snapshots (docs/architecture.md).
//
// Rows carry (txid, seq), the transaction id assigned before the sequence number was taken. Rows
// become visible in the order of commits, which is neither the order of txid nor that of seq, so
// one number cannot say what has been read. A position says it by zones of seq, from the lowest up:
//
//   seq in (floor, z1.upto]     read if and only if z1.seen sees the row's transaction
//   seq in (z1.upto, z2.upto]   read if and only if z2.seen does
//   ...
//   seq above the last upto     not read
//
// A lane that has caught up has one zone, (hwm, snapshot, next_xid). More zones exist only while a
// backlog is read in chunks. `top` is the snapshot with which the lane last caught up.
//
// A chunk is read under a new snapshot T, taken between the sequence's last value (read before it)
// and the next transaction id (read after it). It takes what T sees and the position does not have,
// lowest zone first, ordered by seq within each, and nothing above the sequence's last value: such
// a row of a transaction that has just committed is for the next chunk, and one with a seq that the
// sequence has not given out yet waits until it has.
//
// Order: emitters of one key come one after the other, so
// if a row is seen then all rows of its key with a smaller seq are seen too, and order within a key
// is kept. Wherever the chunk ends, everything below it is now a zone of T.
//
// What may appear late in a zone are rows whose transaction was running when its snapshot was
// taken: those of xip, and those with xmax <= txid < next_xid. (xmax of a snapshot is the latest
// *completed* transaction + 1: a running one can be at or above it and have taken its seq long
// before.)
//
// What is late of all transactions but one may be read before the rows of that one. None of it can
// follow a row of its key among these: when its seq was taken, the transaction of that row would
// have been committed, and the snapshot of its zone was taken later.
//
// A row of a later transaction can only be in a zone if the sequence has given out its seq a second
// time: it was set back, or began again with an emptied log. The row is taken like a late one,
// unless very many transactions have begun since the zone was read and very many rows have come:
// then a look for such rows would cost too much, and they are not read.
//
// While a lane has a long backlog, it goes on beyond it with a second position (LanePosition): what
// comes after the backlog need not wait for it, unless its key has an event there.
//
// Nothing here knows Postgres; log_position_logic_test.cc plays random histories against it, and
// tests/models/log_cursor.pml all short ones.
#ifndef POSTBOX_WORKER_PUBLISHER_STORE_LOG_POSITION_LOGIC_H_
#define POSTBOX_WORKER_PUBLISHER_STORE_LOG_POSITION_LOGIC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace postbox::publisher {

// A full transaction id (xid8).
using FullXid = uint64_t;

// What pg_snapshot says, parsed.
struct XidSnapshot {
  FullXid xmin = 3;          // everything below is completed; 3 is the first normal transaction id
  FullXid xmax = 3;          // nothing at or above is completed
  std::vector<FullXid> xip;  // running between the two, ascending

  bool Sees(FullXid xid) const;
  // The text form of pg_snapshot, `xmin:xmax:xip,xip`.
  std::string ToText() const;
  // Nothing if the text is not what Postgres writes of a snapshot.
  static std::optional<XidSnapshot> FromText(std::string_view text);
  // The same as if this transaction were running.
  XidSnapshot Without(FullXid xid) const;
  // Of two snapshots of one cluster, whether this one was taken later and sees more.
  bool IsNewerThan(const XidSnapshot& other) const;
  // Whether this one sees all transactions that the other one sees.
  bool SeesAllOf(const XidSnapshot& other) const;
  bool operator==(const XidSnapshot&) const = default;
};

struct LogZone {
  int64_t upto = 0;
  XidSnapshot seen;
  FullXid next_xid = 3;
  bool operator==(const LogZone&) const = default;
};

// The moment of reading: T with the two values taken before and after it.
struct LogMoment {
  int64_t hwm = 0;
  XidSnapshot snapshot;
  FullXid next_xid = 3;
  FullXid left_out = 0;  // a transaction of which nothing is read; 0: none
  int64_t last_seq = 0;  // of the sequence: hwm is less where only a backlog is read

  bool Sees(FullXid xid) const { return xid != left_out && snapshot.Sees(xid); }
  // What has been read of a zone after a look under this moment.
  XidSnapshot SeenAfter(const XidSnapshot& seen) const;
};

// Rows that may have appeared late in (after, upto]: of these transactions, and of all transactions
// in [range_begin, range_end) when that is not empty.
struct LateRead {
  int64_t after = 0;
  int64_t upto = 0;
  std::vector<FullXid> txids;
  FullXid range_begin = 0;
  FullXid range_end = 0;
};

class LogPosition {
 public:
  // Before the first row.
  LogPosition() = default;
  LogPosition(int64_t floor, std::vector<LogZone> zones, XidSnapshot top);
  // Everything up to this moment read; rows up to `floor` are never looked at again.
  static LogPosition At(const LogMoment& moment, int64_t floor = 0);

  int64_t floor() const { return floor_; }
  const std::vector<LogZone>& zones() const { return zones_; }
  const XidSnapshot& top() const { return top_; }
  // Up to this seq everything was read at one moment, the last one.
  int64_t lowest() const { return zones_.empty() ? floor_ : zones_.front().upto; }
  // New rows have a greater seq.
  int64_t from() const { return zones_.empty() ? floor_ : zones_.back().upto; }
  bool caught_up() const { return zones_.size() == 1 && zones_[0].seen == top_; }

  // What a chunk has to look at below from(), lowest first. Empty when nothing can have appeared.
  std::vector<LateRead> LateReads(const LogMoment& moment) const;

  // Whether so much time has passed since a zone was read that LateReads() may leave out rows whose
  // seq was given out a second time.
  bool MayLeaveOutRepeats(const XidSnapshot& now) const;

  // The position after a chunk that was full: `last_seq` is its last row's. It may lie in any zone.
  LogPosition AfterPartial(const LogMoment& moment, int64_t last_seq) const;
  // The position after a chunk that found everything up to from().
  LogPosition AfterLate(const LogMoment& moment) const;
  // The position after a chunk that found everything up to the moment's hwm, of all transactions.
  LogPosition AfterAll(const LogMoment& moment) const;
  // Both in one. The floor of `ahead` is from().
  LogPosition Joined(const LogPosition& ahead) const;

  // Whether a row is read according to this position (for tests and for re-basing).
  bool HasRead(FullXid txid, int64_t seq) const;

  bool operator==(const LogPosition&) const = default;

 private:
  // A look under this moment has found everything up to this seq.
  LogPosition LookedUpTo(int64_t upto, const LogMoment& moment) const;

  int64_t floor_ = 0;
  std::vector<LogZone> zones_;
  XidSnapshot top_;
};

// What was read ahead of a backlog: above the floor of the position, all of the backlog is below.
struct AheadPosition {
  LogPosition position;
  // In the order of reading, those that were read and are not published: their keys have earlier
  // events in the backlog.
  std::vector<int64_t> withheld;
  bool operator==(const AheadPosition&) const = default;
};

// How far a lane has read, or has settled, its log.
struct LanePosition {
  LogPosition main;
  std::optional<AheadPosition> ahead;

  // What has been looked at may end here, and was read with this snapshot or an earlier one.
  int64_t from() const { return ahead ? ahead->position.from() : main.from(); }
  const XidSnapshot& newest() const;
  bool operator==(const LanePosition&) const = default;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_STORE_LOG_POSITION_LOGIC_H_
