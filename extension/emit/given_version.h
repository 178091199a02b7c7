// Versions that emitters give to events of a log, beside versions that Postbox counts.
//
// Rule: a counted version is above every version that was given before to the same aggregate. (A
// `table` needs none of this: there, given versions pass through the version counter, and must
// grow.)
//
// A log takes a given version as it is. Where the versions of an aggregate type are always given,
// that costs nothing: the type has no row in the version counter.
//
//  - The given versions of such a type are not above its *version floor*: the greatest version of
//    its rows in postbox.given_version. A transaction that gives a greater one adds a row. Rows are
//    added and never changed, so no transaction waits for another one here. Up to kExactFloor a
//    floor is the version that was given, above it is an eighth higher: a type gets some 300 rows
//    at most for each session that adds them at the same time, whatever its versions are.
//  - A type is *counted* as soon as the counter has a row of it, committed or not. From then on no
//    floor is added. A given version above the floor raises the row of its aggregate, and waits for
//    that row, as counting does.
//  - All rows of a type in the counter are above its floor, that of running transactions included.
//
// Races:
//
//  1. A gives a version, and B counts the first version of the type, at the same time. A adds its
//     row to given_version and looks for rows of the type in the counter then. B adds its row to
//     the counter and looks at the floor then. Both see what is not committed. So A sees B's row,
//     takes its own back and raises the row of its aggregate, or B sees A's floor, or both.
//  2. B is rolled back, and A has raised the row of its aggregate: that row makes the type counted.
//  3. A is rolled back, and B has begun above A's floor: the versions have a gap.
//  4. A gives a version below a floor that is there, and looks for nothing. What B counts is above.
//  5. A transaction looks at the floor once, after it has added a row of the type to the counter:
//     what comes to the floor later is taken back, as in 1. After a rollback to a savepoint it
//     looks again.
//
// What this does not do: hold B up until A has ended, where A gave its version before the type was
// counted. Emitters that give versions have locked their aggregate by themselves.
#ifndef POSTBOX_EXTENSION_EMIT_GIVEN_VERSION_H_
#define POSTBOX_EXTENSION_EMIT_GIVEN_VERSION_H_

#include "extension/emit/outbox_cache.h"

namespace postbox {

// To be called before a version that is given, and positive, is stored in a log. Returns whether
// the row of its aggregate in the counter has to be raised to it; if not, it is not above the floor
// of the type. `aggregate_type` is a text, not toasted, as in the functions below.
bool MustRaiseCounter(const Outbox& outbox, Datum aggregate_type, int64 version);

// The floor of a type in a log, where this transaction has a row of the type in the counter; 0 if
// the type has none.
int64 FloorOfType(const Outbox& outbox, Datum aggregate_type);

// The same if this transaction has looked before; 0 if it has not.
int64 KnownFloorOfType(const Outbox& outbox, Datum aggregate_type);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_EMIT_GIVEN_VERSION_H_
