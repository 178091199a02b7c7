// Events as one parameter of type postbox.event[], in binary format.
//
// The server only copies the values. Before, SQL built them of parallel arrays with a cast for each
// text, which took the server 4 us an event.
#ifndef POSTBOX_WORKER_PULLER_EVENT_ARRAY_H_
#define POSTBOX_WORKER_PULLER_EVENT_ARRAY_H_

#include <vector>

#include "worker/puller/database.h"
#include "worker/puller/key_queues.h"

namespace postbox::puller {

// `event_type`: the OID of postbox.event.
Parameter EventArray(Oid event_type, const std::vector<const Delivery*>& deliveries);

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_EVENT_ARRAY_H_
