// The event trigger postbox_refuse_drop: DROP EXTENSION postbox asks for CASCADE if there are
// outboxes or inboxes, and says what would be lost.
//
// The server itself knows of some outboxes only: a log has defaults that call functions of the
// extension, an inbox has a column of one of its types. With CASCADE these go, and the tables stay
// with their events. register_outbox and register_inbox take them back.
//
// It asks tables of Postbox and the catalogs only: a superuser drops the extension, and
// no code of a user runs with these rights.
#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/trust/act_as.h"
#include "extension/trust/registrar.h"

extern "C" {
#include <commands/event_trigger.h>
#include <nodes/parsenodes.h>
#include <nodes/value.h>
}

namespace postbox {
namespace {

bool DropsPostbox(const Node* statement) {
  if (statement == nullptr || !IsA(statement, DropStmt)) return false;
  const auto* drop = reinterpret_cast<const DropStmt*>(statement);
  if (drop->removeType != OBJECT_EXTENSION) return false;
  ListCell* cell;
  foreach (cell, drop->objects) {
    if (std::strcmp(strVal(lfirst(cell)), "postbox") == 0) return true;
  }
  return false;
}

std::string Counted(int64 count, const char* one, const char* many) {
  return std::to_string(count) + " " + (count == 1 ? one : many);
}

struct Loss {
  int64 outboxes = 0;
  int64 inboxes = 0;
  std::string detail;
};

Loss FindLoss() {
  const SpiConnection connection;
  const FixedSearchPath search_path;
  // The server refuses a role that does not own the extension. Nothing is said to it before.
  Run("SELECT pg_has_role(e.extowner, 'USAGE') FROM pg_extension e WHERE e.extname = 'postbox'");
  if (!BoolColumn(0, 1)) return {};
  const Registrar registrar("outbox");
  // At least the events behind the slowest lane of each log; what is parked is not counted.
  Run("SELECT (SELECT count(*) FROM postbox.outbox), (SELECT count(*) FROM postbox.inbox), "
      "(SELECT string_agg(o.relation::text, ', ' ORDER BY o.relation::text) FROM postbox.outbox "
      "o), "
      "(SELECT string_agg(i.relation::text, ', ' ORDER BY i.relation::text) FROM postbox.inbox i), "
      "(SELECT count(*) FROM postbox.publication), (SELECT count(*) FROM postbox.subscription), "
      "(SELECT count(*) FROM postbox.projection) + (SELECT count(*) FROM postbox.handler), "
      "(SELECT count(*) FROM postbox.dead_letter), "
      "(SELECT coalesce(sum(greatest(0, l.last - l.hwm)), 0)::bigint FROM (SELECT "
      "coalesce(pg_sequence_last_value(postbox.log_sequence(o.relation)), 0) AS last, "
      "(SELECT min(coalesce(l.hwm, 0)) FROM postbox.publication p JOIN postbox.lane l "
      "ON l.publication = p.name WHERE p.outbox = o.relation) AS hwm "
      "FROM postbox.outbox o WHERE o.kind = 'log') l)");
  Loss loss;
  loss.outboxes = Int64Column(0, 1);
  loss.inboxes = Int64Column(0, 2);
  const std::string outboxes = TextColumn(0, 3);
  const std::string inboxes = TextColumn(0, 4);
  if (loss.outboxes > 0) {
    loss.detail = Counted(loss.outboxes, "outbox", "outboxes") + " (" + outboxes + ") with " +
                  Counted(Int64Column(0, 5), "publication", "publications") + ", which stop" +
                  (Int64Column(0, 5) == 1 ? "s" : "") + ": unpublished events will not be sent";
    const int64 unread = Int64Column(0, 9);
    if (unread > 0) {
      loss.detail += ", in log outboxes alone up to " + Counted(unread, "event", "events");
    }
    loss.detail += ". ";
  }
  if (loss.inboxes > 0) {
    loss.detail += Counted(loss.inboxes, "inbox", "inboxes") + " (" + inboxes + ") with " +
                   Counted(Int64Column(0, 6), "subscription", "subscriptions") + ", " +
                   Counted(Int64Column(0, 7), "projection or handler", "projections or handlers") +
                   " and " + Counted(Int64Column(0, 8), "dead letter", "dead letters") + ".";
  }
  if (loss.detail.ends_with(' ')) loss.detail.pop_back();
  return loss;
}

constexpr char kStays[] =
    "The tables of outboxes and inboxes stay. After CREATE EXTENSION, postbox.register_outbox and "
    "postbox.register_inbox take them back; publications, positions, subscriptions, projections, "
    "handlers and dead letters are lost.";

void BeforeDrop(const Node* statement) {
  if (!DropsPostbox(statement)) return;
  const Loss loss = FindLoss();
  if (loss.outboxes + loss.inboxes == 0) return;
  if (reinterpret_cast<const DropStmt*>(statement)->behavior == DROP_RESTRICT) {
    Throw(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST,
          "cannot drop extension postbox because outboxes or inboxes depend on it", loss.detail,
          std::string("Use DROP EXTENSION postbox CASCADE to drop it nevertheless. ") + kStays);
  }
  Pg([&] {
    ereport(NOTICE, (errmsg("drop cascades to the registrations of outboxes and inboxes"),
                     errdetail_internal("%s", loss.detail.c_str()), errhint("%s", kStays)));
  });
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(refuse_drop) {
  return postbox::Guarded([&] {
    if (!CALLED_AS_EVENT_TRIGGER(fcinfo)) {
      postbox::Throw(ERRCODE_E_R_I_E_EVENT_TRIGGER_PROTOCOL_VIOLATED,
                     "refuse_drop() is an event trigger function");
    }
    const auto* trigger = reinterpret_cast<const EventTriggerData*>(fcinfo->context);
    postbox::BeforeDrop(trigger->parsetree);
    return Datum{0};
  });
}
