// Takes over the leases of a table outbox whose workers are gone, or that took too long: their rows
// wait again. The races are told in table_outbox.h.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_TABLE_LEASE_TAKEOVER_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_TABLE_LEASE_TAKEOVER_H_

#include <map>
#include <set>

#include "worker/publisher/source/table/event_table.h"
#include "worker/publisher/source/table/in_hand_logic.h"

namespace postbox::publisher {

class LeaseTakeover {
 public:
  using Clock = std::chrono::steady_clock;

  // All of these must outlive the object.
  LeaseTakeover(const Publication& publication, const std::string& lock_token, EventTable& table,
                const InHand& in_hand)
      : publication_(publication), lock_token_(lock_token), table_(table), in_hand_(in_hand) {}

  // When leases are to be looked through.
  Clock::time_point Next() const;
  // Before Run().
  void Begin(Clock::time_point now) { looked_at_ = now; }
  // `seen`: rows that walks have passed, since others had leased them.
  struct TakenOver {
    bool any = false;
    std::int64_t events = 0;  // that may have been sent
  };
  TakenOver Run(const std::vector<ItemPointerData>& seen);

 private:
  // Why a lease ends. kForgotten: it is our own, but we have not got the row. kNone: it is none.
  enum class Ending { kGone, kOld, kForgotten, kNone };
  static const char* Reason(Ending ending);
  std::optional<Ending> EndingOf(const LeasedRow& lease,
                                 const std::vector<std::string>& live) const;
  struct Leases {
    std::vector<ItemPointerData> rows;
    std::set<std::string> tokens;
  };
  // `timeout`: in seconds.
  std::map<Ending, Leases> EndingLeases(double timeout, const std::vector<ItemPointerData>& seen);

  const Publication& publication_;
  const std::string& lock_token_;
  EventTable& table_;
  const InHand& in_hand_;
  Clock::time_point looked_at_{};
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_TABLE_LEASE_TAKEOVER_H_
