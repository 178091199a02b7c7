// postbox.event_replicated: the trigger that keeps a database from publishing what logical
// replication has brought into one of its outboxes. The database of the rows publishes them.
//
// The trigger fires for replicas only (ENABLE REPLICA): ordinary sessions pass it by, and a session
// that sets session_replication_role = replica is recognized by its replication origin. What
// arrives is marked:
//
//   log     with an origin that no cluster has. The row is kept, postbox.outbox_status says so, and
//           postbox.resolve_unknown_origin decides (foreign_events.cc).
//   table   as FAILED, if it is not published yet: it waits for postbox.redrive. When the source
//           has published it, the UPDATE that arrives says so, as any other does.
//   parked  of a log: likewise. The row goes when the DELETE of the source arrives.
//
// What outbox_emit stores in that session is not marked (replicated.h).
//
// The mark is an UPDATE of the row, as the owner of the table, in the transaction that brings it.
#include "extension/emit/replicated.h"

#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/registry/log_relations.h"
#include "extension/trust/act_as.h"

extern "C" {
#include <commands/trigger.h>
#include <replication/origin.h>
}

namespace postbox {
namespace {

int emitting_here = 0;

constexpr const char* kWait =
    "next_retry_at = 'infinity', publish_attempts = greatest(publish_attempts, 1), last_error = "
    "'came by logical replication, and is published where it was emitted; postbox.redrive "
    "publishes it here'";

// What marks the row $1, unless it is marked already: the UPDATE fires the trigger, too.
std::string MarkOf(std::string_view kind) {
  if (kind == "log") {
    const std::string origin = std::to_string(kReplicatedOrigin);
    return "origin = " + origin + " WHERE ctid = $1 AND origin <> " + origin;
  }
  if (kind == "table") {
    return std::string(kWait) +
           ", lock_token = NULL, locked_at = NULL WHERE ctid = $1 AND published_at IS NULL AND "
           "(lock_token IS NOT NULL OR next_retry_at IS NULL OR next_retry_at <> 'infinity' OR "
           "publish_attempts = 0)";
  }
  return std::string(kWait) +
         " WHERE ctid = $1 AND (next_retry_at <> 'infinity' OR publish_attempts = 0)";
}

void MarkReplicated(const TriggerData& trigger) {
  const HeapTuple row =
      TRIGGER_FIRED_BY_UPDATE(trigger.tg_event) ? trigger.tg_newtuple : trigger.tg_trigtuple;
  const Oid relation = RelationGetRelid(trigger.tg_relation);
  SpiConnection connection;
  FixedSearchPath search_path;
  const ActAs owner(RelationOwner(relation));
  Parameters parameters;
  parameters.Add(TIDOID, PointerGetDatum(&row->t_self));
  Run("UPDATE ONLY " + RelationName(relation) + " SET " + MarkOf(trigger.tg_trigger->tgargs[0]),
      parameters);
}

}  // namespace

EmittedHere::EmittedHere() { ++emitting_here; }
EmittedHere::~EmittedHere() { --emitting_here; }

}  // namespace postbox

POSTBOX_FUNCTION(event_replicated) {
  return postbox::Guarded([&] {
    const auto* trigger = reinterpret_cast<const TriggerData*>(fcinfo->context);
    if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_AFTER(trigger->tg_event) ||
        !TRIGGER_FIRED_FOR_ROW(trigger->tg_event) || trigger->tg_trigger->tgnargs != 1) {
      postbox::Throw(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED,
                     "event_replicated() is the trigger function of outboxes");
    }
    if (POSTBOX_REPLAYS_REPLICATION && postbox::emitting_here == 0) {
      postbox::MarkReplicated(*trigger);
    }
    return Datum{0};
  });
}
