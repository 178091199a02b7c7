// What is missing when a parked event is discarded and its key goes on.
#ifndef POSTBOX_EXTENSION_APPLY_HOLE_H_
#define POSTBOX_EXTENSION_APPLY_HOLE_H_

#include "extension/apply/dead_letter.h"

namespace postbox {

// Why the effect of the event would be missing for good; empty if it would not. It is not missing
// if nothing takes the event, or if only projections do and in each a parked event behind it
// writes all columns of the same row, or deletes that row. That one counts as applied: when it is
// to be discarded, the question is asked again.
std::string HoleAfter(ApplySession& session, const DeadLetter& letter);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_HOLE_H_
