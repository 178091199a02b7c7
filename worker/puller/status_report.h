// The row of postbox.subscription_status with which this process reports on a subscription.
#ifndef POSTBOX_WORKER_PULLER_STATUS_REPORT_H_
#define POSTBOX_WORKER_PULLER_STATUS_REPORT_H_

#include <string>

#include "worker/puller/database.h"
#include "worker/puller/pull_status.h"

namespace postbox::puller {

// `appliers`: how many the subscription may have; 0 if that is not known.
QueryResult StoreReport(Connection* connection, const std::string& subscription, int appliers,
                        const StatusNumbers& numbers);
// Removes it, and those that pullers have left behind that were killed or refused.
QueryResult RemoveReport(Connection* connection, const std::string& subscription);

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_STATUS_REPORT_H_
