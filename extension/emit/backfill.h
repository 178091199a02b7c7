// A backfill: events for the rows that a table has already.
//
// Its row in postbox.backfill says what is emitted, and how far: `position` is the key of the last
// row whose event is emitted. A chunk of rows (backfill_chunk.cc) and the position behind it are
// committed together, so that a crash, a cancelled statement or a pause repeats nothing and skips
// nothing. postbox.run_backfill (run_backfill.cc) emits chunk after chunk.
//
// Trust. A backfill emits as the role that created it, in a restricted operation if that is not the
// current one. So its payload function, its column types and what an outbox calls get no other
// rights, whatever role runs it. The row is written by Postbox's own role: its owner and operators
// may run it.
#ifndef POSTBOX_EXTENSION_EMIT_BACKFILL_H_
#define POSTBOX_EXTENSION_EMIT_BACKFILL_H_

#include "extension/emit/page_key.h"

namespace postbox {

struct Backfill {
  std::string name;
  Oid relation;
  Oid outbox;
  Oid owner;
  std::string aggregate_type;
  std::string event_type;
  std::vector<std::string> key;        // columns of the aggregate id
  std::vector<std::string> columns;    // of the payload; all if it is empty
  std::optional<std::string> payload;  // the signature of the function that makes it
  std::vector<std::string> page_key;   // the columns of the primary key
  std::vector<std::string> page_types;
  KeyTexts position;  // empty: before the first row
  KeyTexts last_key;  // the bound; empty: there was no row
  std::string state;  // active, paused, done or cancelled
};

// Its row. Needs SPI and FixedSearchPath. Throws undefined_object if there is none,
// insufficient_privilege unless the current user has the rights of the role that created it, or is
// an operator.
Backfill ReadBackfill(const std::string& name);
// The same, locked until the end of the transaction.
Backfill LockBackfill(const std::string& name);

// Sets columns of its row, given as `column = expression` with $1, the name, and $2, as Postbox's
// own role.
void UpdateBackfill(const std::string& name, const std::string& assignments,
                    const std::string& text = "");

// Says what it waits for. Writes nothing if its row says so already: waiting takes no transaction
// id.
void NoteWait(const std::string& name, const std::string& cause);

// An interval in microseconds. Throws invalid_parameter_value unless it is positive.
int64 PositiveTime(Datum interval, const char* name);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_EMIT_BACKFILL_H_
