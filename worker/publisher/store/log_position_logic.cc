#include "worker/publisher/store/log_position_logic.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace postbox::publisher {

namespace {

// A look for rows with repeated seqs is an index scan over the rows of so many transactions at
// most, or over about so many rows, once: the next look begins where this one ended.
constexpr FullXid kTransactionsOfRepeats = 5000;
constexpr int64_t kRowsOfRepeats = 1'000'000;

bool HasFewTransactions(const LogZone& zone, const XidSnapshot& now) {
  return now.xmax <= zone.next_xid + kTransactionsOfRepeats;
}

}  // namespace

bool XidSnapshot::Sees(FullXid xid) const {
  if (xid < xmin) return true;
  if (xid >= xmax) return false;
  return !std::binary_search(xip.begin(), xip.end(), xid);
}

bool XidSnapshot::IsNewerThan(const XidSnapshot& other) const {
  if (xmax != other.xmax) return xmax > other.xmax;
  return xip.size() < other.xip.size();
}

bool XidSnapshot::SeesAllOf(const XidSnapshot& other) const {
  return xmax >= other.xmax &&
         std::none_of(xip.begin(), xip.end(), [&](FullXid xid) { return other.Sees(xid); });
}

XidSnapshot XidSnapshot::Without(FullXid xid) const {
  XidSnapshot rest = *this;
  if (!Sees(xid)) return rest;
  rest.xmin = std::min(rest.xmin, xid);
  rest.xip.insert(std::upper_bound(rest.xip.begin(), rest.xip.end(), xid), xid);
  return rest;
}

std::string XidSnapshot::ToText() const {
  std::string text = std::to_string(xmin) + ":" + std::to_string(xmax) + ":";
  for (size_t i = 0; i < xip.size(); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(xip[i]);
  }
  return text;
}

std::optional<XidSnapshot> XidSnapshot::FromText(std::string_view text) {
  const char* at = text.data();
  const char* end = at + text.size();
  auto number = [&](FullXid* value) {
    auto [next, error] = std::from_chars(at, end, *value);
    if (error != std::errc()) return false;
    at = next;
    return true;
  };
  auto separator = [&](char wanted) { return at != end && *at++ == wanted; };

  XidSnapshot snapshot;
  if (!number(&snapshot.xmin) || !separator(':') || !number(&snapshot.xmax) || !separator(':')) {
    return std::nullopt;
  }
  while (at != end) {
    FullXid xid = 0;
    if (!snapshot.xip.empty() && !separator(',')) return std::nullopt;
    if (!number(&xid)) return std::nullopt;
    snapshot.xip.push_back(xid);
  }
  if (snapshot.xmin == 0 || snapshot.xmin > snapshot.xmax) return std::nullopt;
  FullXid least = snapshot.xmin;
  for (const FullXid xid : snapshot.xip) {
    if (xid < least || xid >= snapshot.xmax) return std::nullopt;
    least = xid + 1;
  }
  return snapshot;
}

XidSnapshot LogMoment::SeenAfter(const XidSnapshot& seen) const {
  return left_out == 0 || seen.Sees(left_out) ? snapshot : snapshot.Without(left_out);
}

LogPosition::LogPosition(int64_t floor, std::vector<LogZone> zones, XidSnapshot top)
    : floor_(floor), zones_(std::move(zones)), top_(std::move(top)) {}

LogPosition LogPosition::At(const LogMoment& moment, int64_t floor) {
  return LogPosition(floor, {{moment.hwm, moment.snapshot, moment.next_xid}}, moment.snapshot);
}

std::vector<LateRead> LogPosition::LateReads(const LogMoment& moment) const {
  const XidSnapshot& now = moment.snapshot;
  const bool few_rows = moment.hwm - from() <= kRowsOfRepeats;
  std::vector<LateRead> reads;
  int64_t after = floor_;
  for (const LogZone& zone : zones_) {
    LateRead read{after, zone.upto, {}, 0, 0};
    after = zone.upto;
    for (FullXid xid : zone.seen.xip) {
      if (moment.Sees(xid)) read.txids.push_back(xid);
    }
    const FullXid range_end =
        few_rows || HasFewTransactions(zone, now) ? now.xmax : std::min(zone.next_xid, now.xmax);
    if (range_end > zone.seen.xmax) {
      read.range_begin = zone.seen.xmax;
      read.range_end = range_end;
    }
    bool any = !read.txids.empty() || read.range_end > read.range_begin;
    if (any && read.upto > read.after) reads.push_back(std::move(read));
  }
  return reads;
}

bool LogPosition::MayLeaveOutRepeats(const XidSnapshot& now) const {
  return std::any_of(zones_.begin(), zones_.end(),
                     [&](const LogZone& zone) { return !HasFewTransactions(zone, now); });
}

LogPosition LogPosition::AfterPartial(const LogMoment& moment, int64_t last_seq) const {
  return LookedUpTo(last_seq, moment);
}

LogPosition LogPosition::AfterLate(const LogMoment& moment) const {
  return LookedUpTo(from(), moment);
}

LogPosition LogPosition::LookedUpTo(int64_t upto, const LogMoment& moment) const {
  std::vector<LogZone> zones;
  const auto look = [&](int64_t end, const XidSnapshot& seen) {
    LogZone zone{end, moment.SeenAfter(seen), moment.next_xid};
    if (!zones.empty() && zones.back().seen == zone.seen) zones.pop_back();
    zones.push_back(std::move(zone));
  };
  int64_t after = floor_;
  for (const LogZone& zone : zones_) {
    if (after < upto) look(std::min(zone.upto, upto), zone.seen);
    if (zone.upto > upto) zones.push_back(zone);
    after = zone.upto;
  }
  if (after < upto) look(upto, XidSnapshot());
  return LogPosition(floor_, std::move(zones), top_);
}

LogPosition LogPosition::AfterAll(const LogMoment& moment) const {
  LogMoment reached = moment;
  reached.hwm = std::max(moment.hwm, from());
  return At(reached, floor_);
}

LogPosition LogPosition::Joined(const LogPosition& ahead) const {
  std::vector<LogZone> zones = zones_;
  zones.insert(zones.end(), ahead.zones_.begin(), ahead.zones_.end());
  // All zones are read as far as the oldest snapshot sees.
  const XidSnapshot* top = &top_;
  for (const LogZone& zone : ahead.zones_) {
    if (top->IsNewerThan(zone.seen)) top = &zone.seen;
  }
  return LogPosition(floor_, std::move(zones), *top);
}

bool LogPosition::HasRead(FullXid txid, int64_t seq) const {
  if (seq <= floor_) return true;
  for (const LogZone& zone : zones_) {
    if (seq <= zone.upto) return zone.seen.Sees(txid);
  }
  return false;
}

// Of the zones the lowest was read last.
const XidSnapshot& LanePosition::newest() const {
  const auto newest_of = [](const LogPosition& position) -> const XidSnapshot& {
    return position.zones().empty() ? position.top() : position.zones().front().seen;
  };
  const XidSnapshot& seen = newest_of(main);
  if (!ahead || !newest_of(ahead->position).IsNewerThan(seen)) return seen;
  return newest_of(ahead->position);
}

}  // namespace postbox::publisher
