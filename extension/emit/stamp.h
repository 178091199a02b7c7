// What the emitter of a row of a log does not say: txid, seq, generation and origin. outbox_emit
// takes them here, and so does the trigger of plain INSERTs (stamp.cc).
//
// Rule: the transaction has its id before it takes a sequence number of a log. Workers rely on it.
#ifndef POSTBOX_EXTENSION_EMIT_STAMP_H_
#define POSTBOX_EXTENSION_EMIT_STAMP_H_

#include "extension/emit/outbox_cache.h"
#include "extension/registry/log_relations.h"

namespace postbox {

// The id of the transaction, which it has from now on: an xid8.
Datum CurrentTxid();

// The next value of the sequence of an outbox of any kind.
int64 NextSeq(const OutboxFacts& facts);

// The generation of the transaction, in a log.
int16 GenerationOfNow(const OutboxFacts& facts);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_EMIT_STAMP_H_
