// Snapshots in the position of a log: what is read is written the same, and sees what it says.
#include "tests/fuzz/fuzz.h"
#include "worker/publisher/store/log_position_logic.h"

using postbox::fuzz::Input;
using postbox::publisher::FullXid;
using postbox::publisher::LogPosition;
using postbox::publisher::XidSnapshot;

namespace {

void CheckSnapshot(const XidSnapshot& snapshot) {
  const std::string text = snapshot.ToText();
  const auto again = XidSnapshot::FromText(text);
  FUZZ_CHECK(again && *again == snapshot, text);
  for (const FullXid xid : snapshot.xip) FUZZ_CHECK(!snapshot.Sees(xid), text);
  FUZZ_CHECK(!snapshot.Sees(snapshot.xmax), text);
  FUZZ_CHECK(snapshot.xmin == 0 || snapshot.Sees(snapshot.xmin - 1), text);
}

// After everything was read, all that the snapshot sees up to the last value of the sequence has
// been read, and nothing is late; a part of it leaves the rest.
void CheckPosition(const XidSnapshot& snapshot, FullXid next_xid, std::int64_t hwm,
                   std::int64_t last, FullXid xid) {
  const postbox::publisher::LogMoment moment{hwm, snapshot, next_xid};
  const LogPosition all = LogPosition::At(moment, 0);
  FUZZ_CHECK(all.LateReads(moment).empty(), snapshot.ToText());
  FUZZ_CHECK(all.HasRead(xid, hwm) == (hwm <= 0 || snapshot.Sees(xid)), snapshot.ToText());
  const LogPosition part = all.AfterPartial(moment, last);
  FUZZ_CHECK(part.HasRead(xid, last) == (last <= 0 || snapshot.Sees(xid)), snapshot.ToText());
  FUZZ_CHECK(!part.HasRead(xid, std::max({hwm, last, std::int64_t{0}}) + 1), snapshot.ToText());
}

}  // namespace

// The text of a snapshot, and four numbers.
FUZZ(Input* input) {
  const auto snapshot = XidSnapshot::FromText(input->Line());
  if (!snapshot) return;
  CheckSnapshot(*snapshot);
  const auto next_xid = static_cast<FullXid>(input->Integer());
  const std::int64_t hwm = input->Integer() / 2;
  const std::int64_t last = input->Integer() / 2;
  CheckPosition(*snapshot, next_xid, hwm, last, static_cast<FullXid>(input->Integer()));
}
