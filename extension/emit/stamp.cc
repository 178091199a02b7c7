// postbox.stamp_event: the trigger that gives a row of a log its txid, seq and origin, whatever the
// INSERT says. So no role with INSERT says when or where an event was emitted, and workers can
// rely on it (worker/publisher/store/log_position_logic.h):
//
//  - the transaction has its id before it takes the sequence number;
//  - no row has a seq that the sequence has not given out, and no two have the same one, unless
//    the sequence is set back.
//
// Rows of another cluster keep what they have: a restore brings them (foreign_events.cc). A row of
// another generation than that of now keeps that: it is the key of the partitions, which a trigger
// cannot change, and says when they are purged. Only the owner of the outbox inserts such rows.
//
// Each partition has its own trigger, not the log: so that a parallel pg_restore makes it when
// the rows of the partition are there.
//
// What passes the trigger by, or through it as it is:
//   outbox_emit, where it needs no statement: it gives true values itself (plain_table.h)
//   logical replication, whose rows event_replicated marks (replicated.cc)
//   a superuser with session_replication_role = replica, to put rows back as they were
//   rows of a log that is not registered: its owner restores it, and the registration comes later
//   an UPDATE; one that moves a row into another partition counts as an INSERT there
//   a trigger of the owner that comes after this one
//   an owner who disables the trigger: postbox.outbox_problem says so
#include "extension/emit/stamp.h"

#include "extension/base/relation.h"
#include "extension/lifecycle/wakeup.h"

extern "C" {
#include <commands/sequence.h>
#include <commands/trigger.h>
#include <storage/lmgr.h>
}

namespace postbox {
namespace {

struct StampColumn {
  const char* name;
  Oid type;
};
constexpr StampColumn kTxid = {"txid", XID8OID}, kSeq = {"seq", INT8OID},
                      kOrigin = {"origin", INT4OID}, kGeneration = {"generation", INT2OID};

class Row {
 public:
  explicit Row(const TriggerData& trigger)
      : relation_(trigger.tg_relation), tuple_(trigger.tg_trigtuple) {}

  // Empty if it is NULL.
  std::optional<Datum> Value(const StampColumn& column) const {
    const int number = Number(column);
    bool null = true;
    const Datum value =
        Pg([&] { return heap_getattr(tuple_, number, RelationGetDescr(relation_), &null); });
    if (null) return std::nullopt;
    return value;
  }

  HeapTuple Stamped(Datum txid, Datum seq, Datum origin) const {
    int numbers[] = {Number(kTxid), Number(kSeq), Number(kOrigin)};
    Datum values[] = {txid, seq, origin};
    bool nulls[lengthof(numbers)] = {};
    return Pg([&] {
      return heap_modify_tuple_by_cols(tuple_, RelationGetDescr(relation_), lengthof(numbers),
                                       numbers, values, nulls);
    });
  }

 private:
  // The owner may have altered the table.
  int Number(const StampColumn& column) const {
    const int number = SPI_fnumber(RelationGetDescr(relation_), column.name);
    if (number > 0 && SPI_gettypeid(RelationGetDescr(relation_), number) == column.type) {
      return number;
    }
    Throw(ERRCODE_INVALID_TABLE_DEFINITION,
          "log outbox \"" + RelationName(RelationGetRelid(relation_)) + "\" has no column \"" +
              column.name + "\" of type " +
              Pg([&]() -> const char* { return format_type_be(column.type); }),
          "Its owner has renamed or altered it.",
          "Rename it back or change its type back: postbox.publication_status has the remedy.");
  }

  const Relation relation_;
  const HeapTuple tuple_;
};

// For a column with another value than `here`.
void CheckMayRestore(Oid log, const char* column, int32 value, int32 here) {
  if (Pg([&] { return OwnsRelation(log, GetUserId()); })) return;
  Throw(ERRCODE_INSUFFICIENT_PRIVILEGE,
        std::string("permission denied for an event of another ") + column + " in outbox \"" +
            RelationName(log) + "\"",
        "Only the owner of the outbox may restore events. This event has " + std::string(column) +
            " " + std::to_string(value) + "; this transaction has " + std::to_string(here) + ".",
        "Omit txid, seq, origin and generation; their values are assigned.");
}

HeapTuple Stamp(const TriggerData& trigger) {
  const Oid log = LogOfPartition(RelationGetRelid(trigger.tg_relation));
  const Row row(trigger);
  const std::optional<Datum> origin = row.Value(kOrigin);
  if (origin && DatumGetInt32(*origin) != ClusterOrigin()) {
    // A restore may bring the registration of the outbox later.
    CheckMayRestore(log, "origin", DatumGetInt32(*origin), ClusterOrigin());
    return trigger.tg_trigtuple;
  }
  // Of an INSERT into a partition, too.
  Pg([&] { LockRelationOid(log, RowExclusiveLock); });
  // It is none yet, and its owner restores it.
  if (!IsOutbox(log) && Pg([&] { return OwnsRelation(log, GetUserId()); })) {
    return trigger.tg_trigtuple;
  }
  const std::shared_ptr<Outbox> outbox = FindOutbox(log);
  const OutboxFacts& facts = outbox->facts();
  if (!facts.is_log) {
    Throw(ERRCODE_WRONG_OBJECT_TYPE, "outbox \"" + facts.name + "\" is not a log outbox", "",
          "Drop the trigger that calls stamp_event().");
  }
  const int16 now = GenerationOfNow(facts);
  const int16 generation = DatumGetInt16(row.Value(kGeneration).value_or(Int16GetDatum(now)));
  if (generation != now) CheckMayRestore(log, "generation", generation, now);
  RequestPublishersAtCommit(facts.relation);
  const Datum txid = CurrentTxid();
  return row.Stamped(txid, Int64GetDatum(NextSeq(facts)), Int32GetDatum(ClusterOrigin()));
}

}  // namespace

Datum CurrentTxid() {
  return UInt64GetDatum(U64FromFullTransactionId(Pg([] { return GetTopFullTransactionId(); })));
}

int64 NextSeq(const OutboxFacts& facts) {
  return Pg([&] {
    CHECK_FOR_INTERRUPTS();
    if (facts.is_log) GetTopTransactionId();
    return nextval_internal(facts.sequence, false);
  });
}

int16 GenerationOfNow(const OutboxFacts& facts) {
  return GenerationOf(GetCurrentTransactionStartTimestamp(), facts.generation_span);
}

}  // namespace postbox

POSTBOX_FUNCTION(stamp_event) {
  return postbox::Guarded([&] {
    const auto* trigger = reinterpret_cast<const TriggerData*>(fcinfo->context);
    if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_BEFORE(trigger->tg_event) ||
        !TRIGGER_FIRED_FOR_ROW(trigger->tg_event) || !TRIGGER_FIRED_BY_INSERT(trigger->tg_event)) {
      postbox::Throw(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED,
                     "stamp_event() is the trigger function of log outboxes");
    }
    return PointerGetDatum(postbox::Stamp(*trigger));
  });
}
