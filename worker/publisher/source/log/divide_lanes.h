// Another number of lanes for a publication of a log.
//
// postbox.publication.wanted_lanes says how many it is to have. Workers that find it let their
// lanes finish and give them up; then one of them divides the keys again, in one transaction:
//
//  - A multiple of the lanes that there are: each new lane has a part of the keys of one old one
//    (the slice of a key is its hash modulo the lanes), and begins at its position.
//  - Otherwise a new lane has keys of several old ones, whose positions differ. What they have not
//    read at one moment is parked, and all new lanes begin at that moment. Parked events go first,
//    so the order of keys is kept. If more than kMostParked events wait, nothing changes until
//    there are fewer.
//
// A crash leaves the old lanes or the new ones. A worker that does not give up its lanes is waited
// for, or until its lease has ended.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_DIVIDE_LANES_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_DIVIDE_LANES_H_

#include "worker/publisher/store/publication.h"

namespace postbox::publisher {

enum class Division {
  kDone,
  kWaits,    // another worker has a lane, or looks at the publication
  kTooMany,  // events wait, also those of another cluster
};

// In a transaction, with the rights of the worker.
Division DivideLanes(const Publication& publication);

// Whether few enough events wait. As above.
bool CanBeDivided(const Publication& publication);

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_DIVIDE_LANES_H_
