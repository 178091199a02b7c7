// Events that were not sent because their time was over. Each becomes a row of
// postbox.expired_event, in the transaction that settles it, so that none vanishes silently.
//
// An event that no later one of its aggregate follows may have been the last state of the
// aggregate, which consumers then never get: its row says so, and the server's log has a WARNING.
#ifndef POSTBOX_WORKER_PUBLISHER_DELIVERY_EXPIRED_EVENTS_H_
#define POSTBOX_WORKER_PUBLISHER_DELIVERY_EXPIRED_EVENTS_H_

#include <span>

#include "worker/publisher/source/claimed_event.h"
#include "worker/publisher/store/publication.h"

namespace postbox::publisher {

class ExpiredEvents {
 public:
  // A step begins: what an earlier one that failed has noted is forgotten.
  void BeginStep() { rows_.clear(); }
  void Add(const ClaimedEvent& event);
  // As the owner of the outbox: which of them are the last ones of their aggregates.
  void LookUp(Oid outbox);
  // With the rights of the worker.
  void Store(const Publication& publication);

 private:
  struct Row {
    std::string id, aggregate_type, aggregate_id, event_type;
    std::int64_t version, expires_at;
    std::string trace_id;
    bool last;
  };
  Datum Texts(std::string Row::*column) const;
  void Log(const std::string& publication) const;

  std::vector<Row> rows_;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_DELIVERY_EXPIRED_EVENTS_H_
