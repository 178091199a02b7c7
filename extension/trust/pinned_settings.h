// The settings under which values are read and written where the session must not matter.
//
// The text 01/02/2024 is another day in another session: DateStyle, IntervalStyle, TimeZone and the
// like are the caller's, or those of the role or the database it connects to. An event must have
// the same effect in every session, and a tombstone must be found again. So these settings have
// fixed values in inbox_apply and in wait_for_version, for projections, triggers and handlers
// alike. A function that needs another value has a SET clause. The key and the payload that a
// change of a row has in emit_changes are written under them, too.
#ifndef POSTBOX_EXTENSION_TRUST_PINNED_SETTINGS_H_
#define POSTBOX_EXTENSION_TRUST_PINNED_SETTINGS_H_

#include "extension/base/guard.h"

namespace postbox {

// Sets those that have another value, until the end of the nest level that is current: that of
// FixedSearchPath or ActAs (extension/trust/act_as.h). Costs a few comparisons if there is none.
void PinSettings();

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_TRUST_PINNED_SETTINGS_H_
