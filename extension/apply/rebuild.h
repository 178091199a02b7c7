// Rebuilding the target of a projection from events that come once more.
//
// A rebuild is made of what exists: a shadow of the target, which is the target of projections with
// its mapping, in an inbox beside the live one, which a subscription feeds. So the puller, batches,
// attempts and the status serve a rebuild as they do the live projection. New are only the shadow
// (shadow_layout.h, shadow_marks.h), and the end (rebuild_merge.h).
//
//   rebuild_projection  creates the shadow, its inbox, its projections, the subscription, and the
//                       row of postbox.rebuild, in one transaction.
//   postbox pull        applies events to the shadow. An error stops its key, since the
//                       subscription gives nothing up (on_error => 'nack').
//   finish_rebuild      makes the target as the shadow says, and drops what the first step made, in
//                       one transaction.
//   cancel_rebuild      drops it.
//
// On disk is everything. A crash at any point leaves a rebuild that goes on, or none: what Pub/Sub
// does not know to be committed comes again, and the inbox and the versions make that harmless.
//
// The end. Rule: readers see the old rows or the new ones, and no event is lost.
//  1. The target is locked (SHARE ROW EXCLUSIVE): sessions that apply live events wait, readers do
//     not. The lock is asked for with a short time-out, since writers queue behind it.
//  2. The inbox of the shadow is locked: no event is applied to the shadow. A session that applies
//     one takes this lock first, and waits for no lock of step 1, so that is no deadlock.
//  3. The two are compared. If the target is ahead in some key, the second lock is given back, and
//     the puller goes on, for the time that the call allows; then also the first one.
//  4. The rows are merged. A reader with an older snapshot goes on seeing the old ones.
// An event that is live only, because the window began behind it, makes its key lag for ever: the
// status names such a key, and the caller decides.
#ifndef POSTBOX_EXTENSION_APPLY_REBUILD_H_
#define POSTBOX_EXTENSION_APPLY_REBUILD_H_

#include "extension/apply/projection_columns.h"

namespace postbox {

// A row of postbox.rebuild that is active.
struct Rebuild {
  std::string projection;
  Oid target = InvalidOid;
  Oid inbox = InvalidOid;  // the live one
  Oid shadow = InvalidOid;
  Oid shadow_inbox = InvalidOid;
  std::vector<std::string> keys;  // none: all
  bool delete_absent = false;
  std::string start_xid;
  bool is_here = true;  // this database is no copy of the one in which it began
};

// The active rebuild of the target of this projection, locked until the end of the transaction.
// Throws if there is none, or the caller may not change it. Needs SPI and FixedSearchPath.
Rebuild LockRebuild(const std::string& projection);
// The same of one that may have ended.
Rebuild FindRebuild(const std::string& projection);

// All projections of a target, in the order of their ids.
std::vector<ProjectionConfig> ProjectionsOf(Oid target);

// An error unless the caller owns the inbox or is an operator. Needs SPI and FixedSearchPath.
void RequireRebuilder(Oid inbox);

// Drops the shadow and its inbox, as the owner of the live inbox. The row is the caller's.
void DropShadow(const Rebuild& rebuild);

// Runs an UPDATE of the row of a rebuild: `assignments`, whose parameters begin with $2.
void UpdateRebuild(const Rebuild& rebuild, const std::string& assignments, Parameters more = {});

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_REBUILD_H_
