// The row of postbox.subscription_status with which this process reports on a subscription.
#ifndef POSTBOX_WORKER_PULLER_STATUS_REPORT_H_
#define POSTBOX_WORKER_PULLER_STATUS_REPORT_H_

#include <cstddef>
#include <string>

#include "worker/puller/database.h"
#include "worker/puller/pull_status.h"

namespace postbox::puller {

// How many event types a report names, and how much of the name of each.
inline constexpr size_t kMostReportedTypes = 100;
inline constexpr size_t kMostTypeBytes = 200;

// `appliers`: how many the subscription may have; 0 if that is not known.
QueryResult StoreReport(Connection* connection, const std::string& subscription, int appliers,
                        const StatusNumbers& numbers);
// Removes it, and those that pullers have left behind that were killed or refused.
QueryResult RemoveReport(Connection* connection, const std::string& subscription);

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_STATUS_REPORT_H_
